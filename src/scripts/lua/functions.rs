//! Functions: what libraries register, kept in the interpreter from call to call.
//!
//! Owns    the world of libraries, and what they have registered until they are forgotten.
//! Bounds  a library is loaded in a limited number of instructions, and what it says of itself counts as its memory.
//! Source  Redis 7.0 `function_lua.c`; what a library sees, and when, listed on a running server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mlua::chunk::ChunkMode;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use parking_lot::Mutex;

use super::budget::{Budget, Unlimited, Verdict, Watchdog};
use super::calls::Commands;
use super::execute::{Body, Run};
use super::fault::{Stop, refused};
use super::sandbox::Sandbox;
use super::stack::{self, Kept, Kind, Stack, StandIns};
use super::{Failure, Interpreter, LIBRARY, line};
use crate::resp::Reply;
use crate::scripts::Inputs;
use crate::scripts::library::{FLAGS, Function, Loaded, NAME_RULE, is_name};

/// The world of libraries: the scripts' own once they are loaded, next to nothing until then. Built when the first is loaded.
#[derive(Debug)]
pub(super) struct Functions {
    environment: Table,
    /// The metatable of `environment`, which says what that stands for.
    sight: Table,
    /// What a library sees that is being loaded.
    loading_world: Table,
    /// What its functions see when they run.
    running_world: Table,
    /// Of each library, by its number, what is called by which name.
    callbacks: Table,
    callbacks_kept: Kept,
    /// What libraries find around them, as keys of a table: none of it changes.
    pub(super) known: Kept,
    /// What each holds outside of Lua's memory, in bytes.
    held: BTreeMap<u32, usize>,
    next: u32,
    loading: Arc<Mutex<Option<Loading>>>,
}

/// A library that is being loaded.
#[derive(Debug)]
struct Loading {
    callbacks: Table,
    functions: Vec<Function>,
    /// What all libraries hold outside of Lua's memory, in bytes.
    held: usize,
}

/// Functions of `redis` that libraries do not have.
const NOT_FOR_FUNCTIONS: &[&str] = &["replicate_commands", "breakpoint", "debug"];
/// Functions and constants of `redis` that a library has while it is loaded.
const FOR_LOADING: &[&str] =
    &["log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM"];

impl Functions {
    /// Builds it next to the world of scripts.
    pub(super) fn new(lua: &Lua, sandbox: &Sandbox, budget: &Arc<Budget>) -> Result<Self> {
        let Sandbox { real, stand_ins, redis, .. } = sandbox;
        let stand_in = |table: &Table, shown| stand_ins.of(lua, table, shown);
        let (redis, bare) = (copy(lua, redis)?, lua.create_table()?);
        NOT_FOR_FUNCTIONS.iter().try_for_each(|name| redis.raw_set(*name, Value::Nil))?;
        for name in FOR_LOADING {
            bare.raw_set(*name, redis.raw_get::<Value>(*name)?)?;
        }
        let loading = Arc::new(Mutex::new(None));
        let (kept, own) = (Arc::clone(&loading), Arc::clone(budget));
        let register = stack::function(lua, budget, move |lua, args| register(lua, &own, &kept, &args))?;
        bare.raw_set("register_function", register)?;

        let running_world = copy(lua, real)?;
        running_world.raw_set("__redis__err__handler", Value::Nil)?;
        bare.set_metatable(real.metatable())?;
        let loading_world = lua.create_table()?;
        for (world, redis) in
            [(&running_world, stand_in(&redis, None)?), (&loading_world, stand_in(&bare, None)?)]
        {
            world.raw_set("redis", &redis)?;
            world.raw_set("server", redis)?;
            world.set_metatable(real.metatable())?;
        }
        let environment = stand_in(&running_world, Some(stand_in(&lua.create_table()?, None)?))?;
        running_world.raw_set("_G", &environment)?;
        let Some(sight) = environment.metatable() else { return Err(Error::runtime("it was given one")) };
        let known = lua.create_table()?;
        know(&known, stand_ins, Value::Table(environment.clone()))?;
        know(&known, stand_ins, loading_world.raw_get("redis")?)?;
        let known = stack::keep(lua, known)?;
        let callbacks = lua.create_table()?;
        let callbacks_kept = stack::keep(lua, &callbacks)?;
        Ok(Self {
            environment,
            sight,
            loading_world,
            running_world,
            callbacks,
            callbacks_kept,
            known,
            held: BTreeMap::new(),
            next: 0,
            loading,
        })
    }

    /// Pushes the function of that name in the library `id`, or nil.
    pub(super) fn push(&self, stack: &mut Stack<'_>, id: u32, name: &str, limit: &Unlimited<'_>) {
        stack.push_kept(self.callbacks_kept);
        stack.push_number(f64::from(id));
        stack.look_up(-2);
        if stack.kind(-1) == Kind::Table {
            stack.push_bytes(name.as_bytes(), limit);
            stack.look_up(-2);
        }
    }
}

/// A table with the same fields.
fn copy(lua: &Lua, table: &Table) -> Result<Table> {
    let copy = lua.create_table()?;
    table.for_each(|name: Value, value: Value| copy.raw_set(name, value))?;
    Ok(copy)
}

/// Makes a table or a function a key of `known`, and what is in it.
fn know(known: &Table, stand_ins: &StandIns, value: Value) -> Result<()> {
    if !matches!(value, Value::Table(_) | Value::Function(_))
        || known.raw_get::<Option<bool>>(&value)?.is_some()
    {
        return Ok(());
    }
    known.raw_set(&value, true)?;
    let Value::Table(table) = value else { return Ok(()) };
    stand_ins.behind(table)?.for_each(|_: Value, inner: Value| know(known, stand_ins, inner))
}

impl Interpreter {
    /// The world of libraries, which is built if nobody has needed it yet.
    fn libraries(&mut self) -> Result<&mut Functions> {
        match &mut self.libraries {
            Some(libraries) => Ok(libraries),
            none => Ok(none.insert(Functions::new(&self.lua, &self.sandbox, &self.budget)?)),
        }
    }

    /// Runs a library, `body` of its text, and keeps what it registers.
    ///
    /// # Errors
    /// Why it does not compile, or ended early. Nothing of it is kept then.
    pub fn load(&mut self, body: &[u8], commands: &mut dyn Commands) -> std::result::Result<Loaded, Failure> {
        let chunk = self.lua.load(body).set_name("@user_function").set_mode(ChunkMode::Text);
        let environment = self.libraries().map(|libraries| libraries.environment.clone());
        let compiled = environment.and_then(|environment| chunk.set_environment(environment).into_function());
        let function = compiled.map_err(|error| match error {
            Error::SyntaxError { message, .. } => {
                format!("ERR Error compiling function: {message}").into_bytes()
            }
            error => line(&error, self.budget.memory_max()),
        })?;
        self.budget.begin(Arc::new(Patience(AtomicU32::new(0))));
        self.sandbox.shared.begin(commands.limits());
        let result = self.run_library(&function);
        for (level, text) in self.sandbox.shared.take_lines() {
            commands.log(level, &text);
        }
        let is_late = self.budget.stopped() == Some(Stop::Killed);
        self.budget.end(&self.lua);
        const WHAT: &[u8] = b"ERR Error registering functions: ";
        match result {
            Err(_) | Ok(Err(_)) if is_late => Err([WHAT, b"ERR FUNCTION LOAD timeout"].concat()),
            Ok(Ok(loaded)) => Ok(loaded),
            Ok(Err(text)) => Err([WHAT, &text].concat()),
            Err(error) => Err([WHAT, &line(&error, self.budget.memory_max())].concat()),
        }
    }

    fn run_library(&mut self, function: &mlua::Function) -> Result<std::result::Result<Loaded, Failure>> {
        let callbacks = self.lua.create_table()?;
        let libraries = self.libraries()?;
        let held = libraries.held.values().sum();
        libraries.sight.raw_set("__index", &libraries.loading_world)?;
        *libraries.loading.lock() = Some(Loading { callbacks, functions: Vec::new(), held });
        self.functions.raw_set(LIBRARY, function)?;
        let result = self.execute_alone(LIBRARY);
        self.functions.raw_set(LIBRARY, Value::Nil)?;
        let libraries = self.libraries()?;
        let done = libraries.loading.lock().take();
        libraries.sight.raw_set("__index", &libraries.running_world)?;
        if let Err(failure) = result {
            return Ok(Err(failure));
        }
        let Some(done) = done else { return Ok(Err(b"ERR Error running script".to_vec())) };
        let id = libraries.next;
        libraries.callbacks.raw_set(id, done.callbacks)?;
        libraries.held.insert(id, done.held - held);
        // Four billion libraries are loaded one after the other, or never.
        libraries.next = id.wrapping_add(1);
        Ok(Ok(Loaded { id, functions: done.functions }))
    }

    /// Forgets libraries.
    pub fn forget(&mut self, libraries: &[u32]) {
        let Some(loaded) = &mut self.libraries else { return };
        for id in libraries {
            // Taking something out of a table needs no memory, and so cannot fail.
            let _ = loaded.callbacks.raw_set(*id, Value::Nil);
            loaded.held.remove(id);
        }
        self.budget.let_go(&self.lua);
    }

    /// Calls a function of the library `id` and writes what it returns.
    ///
    /// # Errors
    /// Why it ended early. What it has done by then stays done.
    pub fn call(
        &mut self,
        id: u32,
        name: &str,
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> std::result::Result<(), Failure> {
        let body = Body::Function { library: id, name, is_trial: commands.is_trial() };
        self.execute(Run { name, body, inputs }, commands, watchdog, reply)
    }
}

/// Ends a library that takes too long to load. It counts what is done, because no clock is known here.
struct Patience(AtomicU32);

/// How often a library is asked about while it is loaded: about half a second, which is what Redis allows.
const POLLS_MAX: u32 = 100_000;

impl Watchdog for Patience {
    fn poll(&self) -> Verdict {
        if self.0.fetch_add(1, Relaxed) < POLLS_MAX { Verdict::GoOn } else { Verdict::Kill }
    }
}

/// `redis.register_function`
fn register(lua: &Lua, budget: &Budget, loading: &Mutex<Option<Loading>>, args: &MultiValue) -> Result<()> {
    let mut loading = loading.lock();
    let Some(loading) = loading.as_mut() else {
        return Err(refused("redis.register_function can only be called on FUNCTION LOAD command"));
    };
    let (function, callback) = match args.len() {
        1 => named(lua, &args[0])?,
        2 => positional(lua, &args[0], &args[1])?,
        _ => return Err(refused("wrong number of arguments to redis.register_function")),
    };
    if loading.functions.iter().any(|other| other.name == function.name) {
        return Err(refused("Function already exists in the library"));
    }
    let described = function.description.as_ref().map_or(0, Vec::len);
    loading.held += size_of::<Function>() + 2 * function.name.len() + described;
    budget.reserve(lua, loading.held)?;
    budget.charge(loading.functions.len())?;
    loading.callbacks.raw_set(function.name.as_str(), callback)?;
    loading.functions.push(function);
    Ok(())
}

/// `redis.register_function('name', callback)`
fn positional(lua: &Lua, name: &Value, callback: &Value) -> Result<(Function, mlua::Function)> {
    let Some(name) = string(lua, name)? else {
        return Err(refused("first argument to redis.register_function must be a string"));
    };
    let Value::Function(callback) = callback else {
        return Err(refused("second argument to redis.register_function must be a function"));
    };
    Ok((Function { name: checked(name)?, description: None, flags: Vec::new() }, callback.clone()))
}

/// `redis.register_function{function_name = 'name', callback = callback, ...}`
fn named(lua: &Lua, table: &Value) -> Result<(Function, mlua::Function)> {
    let Value::Table(table) = table else {
        let text = "calling redis.register_function with a single argument is only applicable to Lua table \
                    (representing named arguments).";
        return Err(refused(text));
    };
    let (mut name, mut description, mut flags, mut callback) = (None, None, Vec::new(), None);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = string(lua, &key)? else {
            return Err(refused("named argument key given to redis.register_function is not a string"));
        };
        let must_be = |what| format!("argument given to redis.register_function must be a {what}");
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => match string(lua, &value)? {
                Some(text) => name = Some(text),
                None => return Err(refused(&format!("function_name {}", must_be("string")))),
            },
            b"description" => match string(lua, &value)? {
                Some(text) => description = Some(text),
                None => return Err(refused(&format!("description {}", must_be("string")))),
            },
            b"callback" => match value {
                Value::Function(function) => callback = Some(function),
                _ => return Err(refused(&format!("callback {}", must_be("function")))),
            },
            b"flags" => flags = read_flags(lua, &value)?,
            _ => return Err(refused("unknown argument given to redis.register_function")),
        }
    }
    let name = name.ok_or_else(|| refused("redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or_else(|| refused("redis.register_function must get a callback argument"))?;
    Ok((Function { name: checked(name)?, description, flags }, callback))
}

fn read_flags(lua: &Lua, value: &Value) -> Result<Vec<&'static str>> {
    let Value::Table(table) = value else {
        let text = "flags argument to redis.register_function must be a table representing function flags";
        return Err(refused(text));
    };
    let mut raised = [false; FLAGS.len()];
    for at in 1.. {
        let value: Value = table.raw_get(at)?;
        if value.is_nil() || at > FLAGS_MAX {
            break;
        }
        let word = string(lua, &value)?.unwrap_or_default();
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        let place = FLAGS.iter().position(|flag| flag.as_bytes().eq_ignore_ascii_case(word));
        raised[place.ok_or_else(|| refused("unknown flag given"))?] = true;
    }
    Ok(FLAGS.iter().zip(raised).filter(|(_, raised)| *raised).map(|(flag, _)| *flag).collect())
}

/// Flags that are read of one function; there are fewer.
const FLAGS_MAX: i64 = 1000;

fn checked(name: Vec<u8>) -> Result<String> {
    if !is_name(&name) {
        return Err(refused(NAME_RULE));
    }
    String::from_utf8(name).map_err(|_| refused(NAME_RULE))
}

/// The bytes of a string or a number.
fn string(lua: &Lua, value: &Value) -> Result<Option<Vec<u8>>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            Ok(lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}
