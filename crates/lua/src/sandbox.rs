//! What a script finds around itself: Lua's functions as far as Redis leaves them, `redis`, `bit`,
//! `cjson`, `cmsgpack` and `struct`.
//!
//! Owns    the globals of scripts, built once for a state. What loops or computes sizes is in the prelude or in Rust.
//! Rule    nothing in them can be changed by a script, and no file, process, clock or bytecode be reached from them.
//! Source  the globals of Redis 7.0.15, listed on a running server.

use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaString, Table, Value};
use parking_lot::Mutex;
use redlatch_core::scripts::interpreter::Host;

use super::allowed::{ALLOWED, Runs};
use super::args::{Library, type_name};
use super::budget::Budget;
use super::fault::{self, Fault, OUT_OF_MEMORY, PRELUDE_NAME, Place, Stopped, error_table, refused};
use super::redis::{self, Shared};
use super::{Failure, bit, cjson, cmsgpack, math, strings, structs};

/// How the run failed and where, if it did.
type FailureSlot = Arc<Mutex<Option<(Failure, Option<Place>)>>>;

#[derive(Debug)]
pub(super) struct Sandbox {
    /// The stand-in that scripts have as their globals.
    pub(super) environment: Table,
    pub(super) globals: Table,
    /// The table `redis` itself.
    pub(super) redis: Table,
    /// The prelude's function that makes a stand-in for a table.
    stand_in: Function,
    /// The prelude's function that makes `loadstring` and `load` for some globals.
    pub(super) loader: Function,
    /// Compiled scripts, by number: in a table of Lua's, because mlua has few handles.
    pub(super) scripts: Table,
    pub(super) run_script: Function,
    pub(super) run_function: Function,
    pub(super) load_library: Function,
    /// What the functions of `redis` share with the run.
    pub(super) shared: Arc<Shared>,
    /// How the run failed, if it did.
    failure: FailureSlot,
}

impl Sandbox {
    /// Builds it inside a fresh state, out of what Lua has put there.
    pub(super) fn new(lua: &Lua, budget: &Arc<Budget>, host: Host) -> mlua::Result<Self> {
        let shared = Arc::new(Shared::new(host));
        let globals = allowed(lua)?;
        strings::install(lua, &globals.raw_get("string")?, budget)?;
        math::install(lua, &globals.raw_get("math")?, budget)?;
        globals.raw_set("bit", bit::install(lua, budget)?)?;
        globals.raw_set("cjson", cjson::install(lua, budget)?)?;
        globals.raw_set("cmsgpack", cmsgpack::install(lua, budget)?)?;
        globals.raw_set("struct", structs::install(lua, budget)?)?;
        let redis = redis::install(lua, budget, &shared)?;
        globals.raw_set("redis", &redis)?;
        // Valkey's name for the same.
        globals.raw_set("server", &redis)?;
        globals.raw_set("collectgarbage", collector(lua, budget)?)?;

        let failure = Arc::new(Mutex::new(None));
        let helpers = helpers(lua, budget, &failure)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE_NAME);
        let prelude: Table = prelude.call((&globals, &helpers))?;
        let (stand_in, loader): (Function, Function) =
            (prelude.raw_get("stand_in")?, prelude.raw_get("loader")?);
        // A string finds its functions in the library itself. Scripts see a stand-in for its metatable.
        let strings: Table = globals.raw_get("string")?;
        let of_strings = lua.create_table()?;
        of_strings.raw_set("__index", &strings)?;
        lua.set_type_metatable::<LuaString>(Some(of_strings));
        let (environment, _) = close(lua, &globals, &stand_in, &helpers.raw_get("absent")?)?;
        let of_strings = lua.create_table()?;
        of_strings.raw_set("__index", globals.raw_get::<Table>("string")?)?;
        let of_strings: Table = stand_in.call(of_strings)?;
        prelude.raw_get::<Table>("shown")?.raw_set("", of_strings)?;
        install_loaders(&globals, &loader, &environment)?;
        Ok(Self {
            environment,
            globals,
            redis,
            stand_in,
            loader,
            scripts: prelude.raw_get("scripts")?,
            run_script: prelude.raw_get("run_script")?,
            run_function: prelude.raw_get("run_function")?,
            load_library: prelude.raw_get("load_library")?,
            shared,
            failure,
        })
    }

    /// A stand-in for a table, and its metatable.
    pub(super) fn stand_in(&self, table: &Table) -> mlua::Result<(Table, Table)> {
        self.stand_in.call(table)
    }

    /// How the last run failed.
    pub(super) fn take_failure(&self) -> Option<(Failure, Option<Place>)> {
        self.failure.lock().take()
    }
}

/// What scripts may use of Lua's own library, in tables of their own.
fn allowed(lua: &Lua) -> mlua::Result<Table> {
    let (all, globals) = (lua.globals(), lua.create_table()?);
    for library in ["coroutine", "math", "string", "table"] {
        globals.raw_set(library, lua.create_table()?)?;
    }
    for row in ALLOWED.iter().filter(|row| row.runs == Runs::C && !row.name.ends_with("()")) {
        let (from, to, name) = match row.name.split_once('.') {
            Some((library, name)) => (all.raw_get(library)?, globals.raw_get(library)?, name),
            None => (all.clone(), globals.clone(), row.name),
        };
        let (from, to): (Table, Table) = (from, to);
        to.raw_set(name, from.raw_get::<Value>(name)?)?;
    }
    Ok(globals)
}

/// Puts stand-ins in the place of the libraries, and gives the stand-in for the globals and its metatable.
fn close(lua: &Lua, globals: &Table, stand_in: &Function, absent: &Function) -> mlua::Result<(Table, Table)> {
    let mut libraries = Vec::new();
    globals.for_each(|name: LuaString, value: Value| {
        libraries.extend(value.as_table().map(|library| (name, library.clone())));
        Ok(())
    })?;
    for (name, library) in libraries {
        globals.raw_set(name, stand_in.call::<Table>(library)?)?;
    }
    let strict = lua.create_table()?;
    strict.raw_set("__index", absent)?;
    globals.set_metatable(Some(strict))?;
    let (environment, metatable) =
        stand_in.call::<(Table, Table)>((globals, stand_in.call::<Table>(lua.create_table()?)?))?;
    globals.raw_set("_G", &environment)?;
    Ok((environment, metatable))
}

/// Puts `loadstring` and `load` into globals, for text that sees `environment`.
pub(super) fn install_loaders(globals: &Table, loader: &Function, environment: &Table) -> mlua::Result<()> {
    let (loadstring, load): (Function, Function) = loader.call(environment)?;
    globals.raw_set("loadstring", loadstring)?;
    globals.raw_set("load", load)
}

/// The functions of Rust that the prelude is made with.
fn helpers(lua: &Lua, budget: &Arc<Budget>, failure: &FailureSlot) -> mlua::Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("bad", |call| -> mlua::Result<()> {
        let mut why = call.string(2)?.as_bytes().to_vec();
        if call.len() > 2 {
            let is_none = matches!(call.value(4), Value::Boolean(true));
            why.extend_from_slice(if is_none { "no value" } else { type_name(call.value(3)) }.as_bytes());
        }
        Err(call.bad(call.integer(1)? as usize, why))
    })?;
    library.add("fail", |call| -> mlua::Result<()> { Err(call.error(&*call.string(1)?.as_bytes())) })?;
    library.add("refuse", |_| -> mlua::Result<()> {
        Err(refused("redis.call/pcall can only be called inside a script invocation"))
    })?;
    library.add("setmetatable", |call| {
        let Value::Table(table) = call.value(1) else { return Err(call.wrong_type(1, "table")) };
        let metatable = table.metatable();
        if metatable.is_some_and(|old| old.contains_key("__metatable").unwrap_or(true)) {
            return Err(call.error("cannot change a protected metatable"));
        }
        table.set_metatable(call.value(2).as_table().cloned())?;
        Ok(table.clone())
    })?;
    library.add("absent", |call| -> mlua::Result<()> {
        let Some(name) = super::args::text_of(call.lua, call.value(2))? else {
            return Err(call.error("Second argument to luaProtectedTableError must be a string or number"));
        };
        let start = b"Script attempted to access nonexistent global variable '".as_slice();
        let name = name.as_bytes();
        Err(call.error([start, redlatch_proto::error::until_nul(&name), b"'"].concat()))
    })?;
    library.add("chunk", |call| {
        let text = call.string(1)?;
        let name = if call.value(2).is_nil() { text.clone() } else { call.string(2)? };
        Ok((text, name))
    })?;
    library.add("compile", compile)?;
    strings::add_helpers(&library)?;
    let own = Arc::clone(budget);
    // Called without charge: where the script is over already, too.
    let reveal = lua.create_function(move |lua, value: Value| revealed(lua, &own, value))?;
    library.table.raw_set("reveal", reveal)?;
    let (own, failure) = (Arc::clone(budget), Arc::clone(failure));
    let failed = lua.create_function(move |lua, error: Value| {
        let line = told(lua, &own, &error)?;
        *failure.lock() = Some((line, fault::innermost(lua)));
        Ok(())
    })?;
    library.table.raw_set("failed", failed)?;
    Ok(library.table)
}

/// Bytes of a text that is compiled, and of the name of a chunk.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 20;
const NAME_BYTES_MAX: usize = 1024;

/// Words `elseif` and `break` in a text that is compiled.
const BRANCHES_MAX: usize = 5000;

/// Whether compiling the text would take long: for each `elseif` and `break` the compiler goes through those before it.
fn has_many_branches(text: &[u8]) -> bool {
    let count = |word: &[u8]| text.windows(word.len()).filter(|part| *part == word).count();
    text.len() > BRANCHES_MAX * "break".len() && count(b"elseif") + count(b"break") > BRANCHES_MAX
}

/// Compiles text into a function that sees `environment`. Bytecode is refused.
///
/// # Errors
/// Of the text, as Lua words them; or the stop of a script without memory.
pub(super) fn compiled(lua: &Lua, environment: &Table, text: &[u8], name: &[u8]) -> mlua::Result<Function> {
    let refusal = match () {
        () if text.len() > TEXT_BYTES_MAX => Some("the text is too long"),
        () if has_many_branches(text) => Some("the text has too many branches"),
        () => None,
    };
    if let Some(why) = refusal {
        return Err(Error::SyntaxError { message: why.to_owned(), incomplete_input: false });
    }
    // Bytecode begins with this byte. Behind a space it is part of a text, which makes no sense.
    let marked;
    let text = match text.first() {
        Some(27) => {
            marked = [b" ", text].concat();
            &marked
        }
        _ => text,
    };
    let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]).replace('\0', "");
    // The parser holds the name of the chunk where the collector does not see it (CVE-2025-49844).
    lua.gc_stop();
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text).set_environment(environment.clone());
    let function = chunk.into_function();
    lua.gc_restart();
    function
}

/// `compile(environment, text, name)`: the function, or nil and why there is none.
fn compile(call: &super::args::Call<'_>) -> mlua::Result<(Option<Function>, Option<LuaString>)> {
    let Value::Table(environment) = call.value(1) else { return Err(call.wrong_type(1, "table")) };
    let (text, name) = (call.string(2)?, call.string(3)?);
    let text = text.as_bytes();
    call.charge(text.len())?;
    match compiled(call.lua, environment, &text, &name.as_bytes()) {
        Ok(function) => Ok((Some(function), None)),
        Err(Error::SyntaxError { message, .. }) => Ok((None, Some(call.lua.create_string(message)?))),
        Err(Error::MemoryError(_)) => Err(call.budget.stop_for_memory().into()),
        Err(error) => Err(error),
    }
}

/// `collectgarbage`: a script may collect and count, and not set the collector's pace.
fn collector(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<Function> {
    const PACE_PERCENT: f64 = 200.0;
    const OPTIONS: &[&[u8]] =
        &[b"collect", b"count", b"step", b"stop", b"restart", b"setpause", b"setstepmul"];
    let library = Library::new(lua, budget)?;
    library.add("collectgarbage", |call| {
        let option = if call.value(1).is_nil() { None } else { Some(call.string(1)?) };
        let option = option.as_ref().map(|option| option.as_bytes());
        let option = option.as_deref().unwrap_or(b"collect");
        if !OPTIONS.contains(&option) {
            return Err(call.bad(1, [b"invalid option '", option, b"'"].concat()));
        }
        call.integer_or(2, 0)?;
        let used = call.lua.used_memory();
        match option {
            b"collect" => {
                call.charge(used / 1024)?;
                call.lua.gc_collect()?;
                Ok(Value::Number(0.0))
            }
            b"count" => Ok(Value::Number(used as f64 / 1024.0)),
            b"step" => Ok(Value::Boolean(false)),
            b"setpause" | b"setstepmul" => Ok(Value::Number(PACE_PERCENT)),
            _ => Ok(Value::Number(0.0)),
        }
    })?;
    library.table.raw_get("collectgarbage")
}

/// The value that a script sees of what was raised, and whether the script has to end.
fn revealed(lua: &Lua, budget: &Arc<Budget>, value: Value) -> mlua::Result<(Value, bool)> {
    if let Value::String(text) = &value
        && *text.as_bytes() == *OUT_OF_MEMORY.as_bytes()
    {
        let Stopped = budget.stop_for_memory();
    }
    if budget.stopped() {
        return Ok((Value::Nil, true));
    }
    let Value::Error(error) = value else { return Ok((value, false)) };
    let seen = match fault::unwrap(&error) {
        Fault::Reply { line, from_command } => Value::Table(error_table(lua, &line, from_command)?),
        Fault::Text(text) if text == OUT_OF_MEMORY.as_bytes() => {
            let Stopped = budget.stop_for_memory();
            Value::Nil
        }
        Fault::Text(text) => Value::String(lua.create_string(text)?),
        Fault::Stopped => Value::Nil,
    };
    Ok((seen, budget.stopped()))
}

/// The error line of a script that did not catch this.
fn told(lua: &Lua, budget: &Arc<Budget>, error: &Value) -> mlua::Result<Failure> {
    Ok(match revealed(lua, budget, error.clone())?.0 {
        _ if budget.stopped() => Vec::new(),
        Value::Table(table) => match lua.coerce_string(table.raw_get("err")?)? {
            Some(text) => text.as_bytes().to_vec(),
            // Redis 7.0.15 dies of this one.
            None => b"ERR the script raised a table without a text".to_vec(),
        },
        Value::String(text) => [b"ERR ", &*text.as_bytes()].concat(),
        other => {
            let text = other.to_string().unwrap_or_else(|_| other.type_name().to_owned());
            format!("ERR {text}").into_bytes()
        }
    })
}
