//! Functions: what libraries register, kept in the interpreter from call to call.
//!
//! Owns    the world of libraries, and what they have registered until they are forgotten.
//! Bounds  a library is loaded in a limited number of instructions, and what it says of itself counts as its memory.
//! Source  Redis 7.0 `function_lua.c`; what a library sees, and when, listed on a running server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use parking_lot::Mutex;
use redlatch_core::scripts::interpreter::{Commands, Failure, Verdict, Watchdog};
use redlatch_core::scripts::library::{FLAGS, Function, Loaded, NAME_RULE, is_name};

use super::LuaInterpreter;
use super::args::{Call, Library, text_of};
use super::budget::Budget;
use super::fault::{Stop, refused};
use super::sandbox::{Sandbox, compiled, install_loaders};

/// The world of libraries: the scripts' own once they are loaded, next to nothing until then. Built when the first is
/// loaded.
#[derive(Debug)]
pub(super) struct Functions {
    environment: Table,
    /// The table `redis` of functions.
    pub(super) redis: Table,
    /// The metatable of `environment`, which says what that stands for.
    sight: Table,
    /// What a library sees while it is being loaded.
    loading_world: Table,
    /// What its functions see when they run.
    running_world: Table,
    /// What each library has registered, by its number: functions by their names.
    callbacks: Table,
    /// Bytes that each library holds outside of Lua's memory.
    held: BTreeMap<u32, usize>,
    next: u32,
    loading: Arc<Mutex<Option<Loading>>>,
}

/// A library that is being loaded.
#[derive(Debug)]
struct Loading {
    callbacks: Table,
    functions: Vec<Function>,
    /// Bytes that all libraries hold outside of Lua's memory.
    held: usize,
}

/// Functions of `redis` that libraries do not have.
const NOT_FOR_FUNCTIONS: &[&str] = &["replicate_commands", "breakpoint", "debug"];
/// Functions and constants of `redis` that a library has while it is loaded.
const FOR_LOADING: &[&str] =
    &["log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM"];

impl Functions {
    /// Builds it next to the world of scripts.
    fn new(lua: &Lua, sandbox: &Sandbox, budget: &Arc<Budget>) -> Result<Self> {
        let loading = Arc::new(Mutex::new(None));
        let library = Library::new(lua, budget)?;
        let kept = Arc::clone(&loading);
        library.add("register_function", move |call| register(call, &kept))?;
        let (redis, bare) = (copy(lua, &sandbox.redis)?, library.table);
        NOT_FOR_FUNCTIONS.iter().try_for_each(|name| redis.raw_set(*name, Value::Nil))?;
        for name in FOR_LOADING {
            bare.raw_set(*name, redis.raw_get::<Value>(*name)?)?;
        }
        bare.set_metatable(sandbox.globals.metatable())?;
        let (running_world, loading_world) = (copy(lua, &sandbox.globals)?, lua.create_table()?);
        for (world, redis) in [(&running_world, &redis), (&loading_world, &bare)] {
            let (redis, _) = sandbox.stand_in(redis)?;
            world.raw_set("redis", &redis)?;
            world.raw_set("server", redis)?;
            world.set_metatable(sandbox.globals.metatable())?;
        }
        let (environment, sight) = sandbox.stand_in(&running_world)?;
        running_world.raw_set("_G", &environment)?;
        install_loaders(&running_world, &sandbox.loader, &environment)?;
        Ok(Self {
            environment,
            redis,
            sight,
            loading_world,
            running_world,
            callbacks: lua.create_table()?,
            held: BTreeMap::new(),
            next: 0,
            loading,
        })
    }

    /// Whether no library is loaded.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The function of that name in the library `id`.
    pub(super) fn callback(&self, id: u32, name: &str) -> Result<mlua::Function> {
        self.callbacks.raw_get::<Table>(id)?.raw_get(name)
    }
}

/// A table with the same fields.
fn copy(lua: &Lua, table: &Table) -> Result<Table> {
    let copy = lua.create_table()?;
    table.for_each(|name: Value, value: Value| copy.raw_set(name, value))?;
    Ok(copy)
}

/// What every error of a library that is loaded begins with.
const REGISTERING: &[u8] = b"ERR Error registering functions: ";

impl LuaInterpreter {
    pub(super) fn load_library(
        &mut self,
        body: &[u8],
        commands: &mut dyn Commands,
    ) -> std::result::Result<Loaded, Failure> {
        let environment = self.libraries().map(|libraries| libraries.environment.clone());
        let function = environment.and_then(|world| compiled(&self.lua, &world, body, b"@user_function"));
        let function = function.map_err(|error| match error {
            Error::SyntaxError { message, .. } => {
                format!("ERR Error compiling function: {message}").into_bytes()
            }
            error => self.line(&error),
        })?;
        let patience = Arc::new(Patience(AtomicU32::new(0)));
        self.budget.begin(&self.lua, patience).map_err(|error| self.line(&error))?;
        self.sandbox.shared.begin(commands.limits());
        let result = self.run_library(&function);
        self.sandbox.shared.write_log(commands);
        let result = match result {
            _ if self.budget.reason() == Some(Stop::Killed) => {
                Err([REGISTERING, b"ERR FUNCTION LOAD timeout"].concat())
            }
            Ok(result) => result.map_err(|line| [REGISTERING, &line].concat()),
            Err(error) => Err([REGISTERING, &self.line(&error)].concat()),
        };
        self.budget.end(&self.lua);
        result
    }

    /// The world of libraries, which is built when the first one comes.
    fn libraries(&mut self) -> Result<&mut Functions> {
        match &mut self.libraries {
            Some(libraries) => Ok(libraries),
            none => Ok(none.insert(Functions::new(&self.lua, &self.sandbox, &self.budget)?)),
        }
    }

    fn run_library(&mut self, function: &mlua::Function) -> Result<std::result::Result<Loaded, Failure>> {
        let callbacks = self.lua.create_table()?;
        let libraries = self.libraries()?;
        let held = libraries.held.values().sum();
        libraries.sight.raw_set("__index", &libraries.loading_world)?;
        *libraries.loading.lock() = Some(Loading { callbacks, functions: Vec::new(), held });
        let result = self.sandbox.load_library.call::<bool>(function);
        let libraries = self.libraries()?;
        let done = libraries.loading.lock().take();
        libraries.sight.raw_set("__index", &libraries.running_world)?;
        let (true, Some(done)) = (result?, done) else { return Ok(Err(self.failure(""))) };
        let libraries = self.libraries()?;
        let id = libraries.next;
        libraries.callbacks.raw_set(id, done.callbacks)?;
        libraries.held.insert(id, done.held - held);
        // Numbers of libraries are never used up: that would take four billion loads.
        libraries.next = id.wrapping_add(1);
        Ok(Ok(Loaded { id, functions: done.functions }))
    }

    pub(super) fn forget_libraries(&mut self, libraries: &[u32]) {
        let Some(loaded) = self.libraries.as_mut().filter(|_| !libraries.is_empty()) else { return };
        for id in libraries {
            // To take something out of a table needs no memory, and so cannot fail.
            let _ = loaded.callbacks.raw_set(*id, Value::Nil);
            loaded.held.remove(id);
        }
        self.budget.collect(&self.lua);
    }
}

/// Ends a library that takes too long to load. It counts what is done, because no clock is known here.
struct Patience(AtomicU32);

/// Polls while a library is loaded: about half a second, which is what Redis allows.
const POLLS_MAX: u32 = 100_000;

impl Watchdog for Patience {
    fn poll(&self) -> Verdict {
        if self.0.fetch_add(1, Relaxed) < POLLS_MAX { Verdict::GoOn } else { Verdict::Kill }
    }
}

/// `redis.register_function`
fn register(call: &Call<'_>, loading: &Mutex<Option<Loading>>) -> Result<()> {
    let (lua, args): (&Lua, &MultiValue) = (call.lua, call.args);
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
    call.budget.reserve(lua, loading.held)?;
    call.charge(loading.functions.len())?;
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
    Ok(text_of(lua, value)?.map(|text| text.as_bytes().to_vec()))
}
