//! What a script finds around itself: Lua's functions as far as Redis leaves them, and `redis`.
//!
//! Owns    the environment of scripts, built once for a state.
//! Rule    nothing in it can be changed by a script, and no file, process, clock or bytecode be reached from it.
//! Source  the globals of Redis 7.0.15, listed on a running server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mlua::{Function, Lua, LuaString, Table, Value};
use parking_lot::Mutex;

use super::budget::Budget;
use super::calls::{Level, Limits};
use super::library::Host;
use super::shortcuts::{SHORTCUTS, Shortcut};
use super::stack::{self, Kept, Port, StandIns};
use super::{bit, cjson, cmsgpack, library, line, strings, structs};
use crate::resp::Protocol;
use crate::scripts::direct;

/// The world of scripts.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// `_G` as a script sees it.
    pub(super) environment: Table,
    /// What it stands for: where KEYS and ARGV are put.
    pub(super) globals: Kept,
    /// The same with the libraries themselves, for scripts that only call: see [`is_direct`](crate::scripts::direct).
    pub(super) direct: (Table, Kept),
    /// The names of KEYS and ARGV.
    pub(super) inputs: [Kept; 2],
    /// Makes of an error that nobody caught a table of how the script failed.
    pub(super) failed: Kept,
    /// Who answers what scripts call.
    pub(super) port: Arc<Port>,
    /// What stands for tables that scripts must not change.
    pub(super) stand_ins: StandIns,
    /// What the functions of `redis` say to the call that runs.
    pub(super) shared: Arc<Shared>,
    /// What `redis` stands for.
    pub(super) redis: Table,
    /// The same as `globals`, for the world of libraries.
    pub(super) real: Table,
}

/// What the functions of `redis` say to the call that runs, and it to them.
#[derive(Debug)]
pub(super) struct Shared {
    /// What is to be learned of the server.
    pub(super) host: Host,
    resp3: AtomicBool,
    lines: Mutex<Vec<(Level, Vec<u8>)>>,
    /// Whether there are any, for most scripts log none.
    has_lines: AtomicBool,
    limits: Mutex<Option<Limits>>,
    /// Whether there are any, for most users have none.
    has_limits: AtomicBool,
    /// What scripts have set of `cjson`.
    pub(super) json: Arc<Mutex<cjson::Settings>>,
}

impl Shared {
    fn new(host: Host, json: Arc<Mutex<cjson::Settings>>) -> Self {
        Self {
            host,
            resp3: AtomicBool::default(),
            lines: Mutex::default(),
            has_lines: AtomicBool::default(),
            limits: Mutex::default(),
            has_limits: AtomicBool::default(),
            json,
        }
    }

    /// A script begins.
    pub(super) fn begin(&self, limits: Option<Limits>) {
        if limits.is_some() || self.has_limits.load(Relaxed) {
            self.has_limits.store(limits.is_some(), Relaxed);
            *self.limits.lock() = limits;
        }
        self.resp3.store(false, Relaxed);
        self.take_lines();
    }

    /// Whether the script's user may send a command, if there is such a one: `redis.acl_check_cmd`.
    pub(super) fn may_send(&self, words: &[&[u8]]) -> Option<bool> {
        (self.host.knows)(words).then(|| self.limits.lock().as_ref().is_none_or(|limits| (limits.0)(words)))
    }

    /// The protocol that replies come in: `redis.setresp`.
    pub(super) fn protocol(&self) -> Protocol {
        if self.resp3.load(Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// `redis.setresp`.
    pub(super) fn set_protocol(&self, protocol: Protocol) {
        self.resp3.store(protocol == Protocol::Resp3, Relaxed);
    }

    /// `redis.log`: kept until the script calls or ends.
    pub(super) fn log(&self, level: Level, line: &[u8]) {
        self.has_lines.store(true, Relaxed);
        let mut lines = self.lines.lock();
        if lines.len() < LINES_MAX {
            lines.push((level, line[..line.len().min(LINE_BYTES_MAX)].to_vec()));
        }
    }

    /// What was logged since this was last asked.
    pub(super) fn take_lines(&self) -> Vec<(Level, Vec<u8>)> {
        match self.has_lines.load(Relaxed) {
            true => {
                self.has_lines.store(false, Relaxed);
                std::mem::take(&mut *self.lines.lock())
            }
            false => Vec::new(),
        }
    }
}

/// Lua's own functions that scripts may use.
const FUNCTIONS: &[&str] = &[
    "assert",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "_VERSION",
];
/// Lua's own libraries that scripts may use.
const LIBRARIES: &[&str] = &["table", "string", "math", "coroutine"];
/// Lines that a script logs between two calls; further ones are dropped.
const LINES_MAX: usize = 100;
/// Bytes of a line in the log.
const LINE_BYTES_MAX: usize = 1024;

impl Sandbox {
    /// Builds it inside a fresh state, out of what Lua has put there.
    pub(super) fn new(lua: &Lua, budget: &Arc<Budget>, host: Host) -> mlua::Result<Self> {
        let real = lua.globals();
        keep_what_scripts_may_use(&real)?;
        let shared = Arc::new(Shared::new(host, install_libraries(lua, &real, budget)?));
        let redis = lua.create_table()?;
        let (port, call, pcall) = Port::install(lua)?;
        redis.raw_set("call", call)?;
        redis.raw_set("pcall", pcall)?;
        library::install(lua, &redis, &shared, budget)?;
        real.raw_set("redis", &redis)?;
        install_shortcuts(lua, &real, &port)?;

        let stand_ins = StandIns::new(lua)?;
        // The library that it has is found at once, and seen behind a stand-in.
        let of_texts = lua.create_table()?;
        stand_ins.install(lua, &real, &stand_ins.of(lua, &of_texts, None)?)?;
        install_mends(lua, &real)?;
        let own = Arc::clone(budget);
        let failed = lua.create_function(move |lua, error: Value| failed(lua, &own, error))?;
        real.raw_set("__redis__err__handler", &failed)?;
        let environment = stand_ins.of(lua, &real, Some(stand_ins.of(lua, &lua.create_table()?, None)?))?;
        install_what_sees_errors(lua, &real, &environment, budget)?;
        real.set_metatable(Some(stack::strict(lua, None)?))?;
        let direct = direct(lua, &real, &stand_ins)?;
        stand_in_for_libraries(lua, &real, &stand_ins)?;
        of_texts.raw_set("__index", real.raw_get::<Table>("string")?)?;
        real.raw_set("_G", &environment)?;

        let (globals, failed) = (stack::keep(lua, &real)?, stack::keep(lua, failed)?);
        let direct = (direct.clone(), stack::keep(lua, direct)?);
        let inputs = [stack::keep(lua, "KEYS")?, stack::keep(lua, "ARGV")?];
        Ok(Self { environment, globals, direct, inputs, failed, port, stand_ins, shared, redis, real })
    }
}

/// Takes out of the globals whatever a script may not reach.
fn keep_what_scripts_may_use(globals: &Table) -> mlua::Result<()> {
    let mut others = Vec::new();
    globals.for_each(|name: LuaString, _: Value| {
        let is_kept = FUNCTIONS.iter().chain(LIBRARIES).any(|kept| *name.as_bytes() == *kept.as_bytes());
        others.extend((!is_kept).then_some(name));
        Ok(())
    })?;
    others.into_iter().try_for_each(|name| globals.raw_set(name, Value::Nil))
}

/// Puts the libraries that are not Lua's among the globals, and what takes the place of functions that are; gives what
/// scripts have set of `cjson`.
fn install_libraries(
    lua: &Lua,
    globals: &Table,
    budget: &Arc<Budget>,
) -> mlua::Result<Arc<Mutex<cjson::Settings>>> {
    stack::install_math(lua, &globals.raw_get("math")?)?;
    strings::install(lua, &globals.raw_get("string")?, budget)?;
    globals.raw_set("tostring", stack::to_string(lua, &globals.raw_get("tostring")?)?)?;
    let table: Table = globals.raw_get("table")?;
    table.raw_set("sort", stack::sorting(lua, &table.raw_get("sort")?, budget)?)?;
    globals.raw_set("bit", bit::install(lua, budget)?)?;
    let (json, settings) = cjson::install(lua, budget)?;
    globals.raw_set("cjson", json)?;
    globals.raw_set("cmsgpack", cmsgpack::install(lua, budget)?)?;
    globals.raw_set("struct", structs::install(lua, budget)?)?;
    Ok(settings)
}

/// Replaces library functions that loop over sizes which a script names.
fn install_mends(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    let table: Table = globals.raw_get("table")?;
    let own = ["unpack", "insert", "tonumber", "type", "error"].map(|name| match name {
        "insert" => table.raw_get::<Value>(name),
        name => globals.raw_get(name),
    });
    let own = own.into_iter().collect::<mlua::Result<mlua::MultiValue>>()?;
    let mends = lua.load(include_str!("mends.lua")).set_name("=mends");
    let (unpack, insert): (Function, Function) = mends.call(own)?;
    globals.raw_set("unpack", unpack)?;
    table.raw_set("insert", insert)
}

/// Puts shorter ways in the place of functions.
fn install_shortcuts(lua: &Lua, globals: &Table, port: &Arc<Port>) -> mlua::Result<()> {
    for (number, (library, name, shortcut)) in SHORTCUTS.iter().enumerate() {
        let library: Table = globals.raw_get(*library)?;
        let slow: Function = library.raw_get(*name)?;
        let function = match *shortcut {
            Shortcut::Direct(direct) => stack::direct(lua, &slow, direct)?,
            Shortcut::Served(_) => port.shortened(lua, &slow, number, None)?,
            Shortcut::Either(direct, _) => port.shortened(lua, &slow, number, Some(direct))?,
        };
        library.raw_set(*name, function)?;
    }
    Ok(())
}

/// Puts the functions among the globals that catch errors, or that make garbage and functions of a text.
fn install_what_sees_errors(
    lua: &Lua,
    globals: &Table,
    environment: &Table,
    budget: &Arc<Budget>,
) -> mlua::Result<()> {
    let [pcall, xpcall] = stack::protections(lua)?;
    globals.raw_set("pcall", pcall)?;
    globals.raw_set("xpcall", xpcall)?;
    let coroutine: Table = globals.raw_get("coroutine")?;
    let [create, resume] = [coroutine.raw_get("create")?, coroutine.raw_get("resume")?];
    let [resume, wrap] = stack::coroutines(lua, &create, &resume)?;
    coroutine.raw_set("resume", resume)?;
    coroutine.raw_set("wrap", wrap)?;
    let [loadstring, load] = stack::compilers(lua, environment, budget)?;
    globals.raw_set("loadstring", loadstring)?;
    globals.raw_set("load", load)?;
    globals.raw_set("collectgarbage", stack::collector(lua, budget)?)
}

/// Puts what stands for the libraries in their place: a script never gets hold of one itself, unless it has been read, and
/// only calls what is in it.
fn stand_in_for_libraries(lua: &Lua, globals: &Table, stand_ins: &StandIns) -> mlua::Result<()> {
    let mut libraries = Vec::new();
    globals.for_each(|name: LuaString, value: Value| {
        libraries.extend(value.as_table().map(|library| (name, library.clone())));
        Ok(())
    })?;
    for (name, library) in libraries {
        globals.raw_set(name, stand_ins.of(lua, &library, None)?)?;
    }
    // Valkey's name for the same.
    globals.raw_set("server", globals.raw_get::<Table>("redis")?)
}

/// A table with every name that a script may use that only calls. Lua finds those first that have come first: later ones, in
/// the same place of a hash table, stand behind them.
fn direct(lua: &Lua, globals: &Table, stand_ins: &StandIns) -> mlua::Result<Table> {
    let names = || [direct::LIBRARIES, direct::INPUTS, direct::FUNCTIONS].into_iter().flatten();
    let direct = lua.create_table_with_capacity(0, names().count())?;
    names().try_for_each(|name| direct.raw_set(*name, false))?;
    names().try_for_each(|name| {
        let of_redis = if *name == "server" { "redis" } else { name };
        direct.raw_set(*name, globals.raw_get::<Value>(of_redis)?)
    })?;
    direct.set_metatable(Some(stack::strict(lua, Some(stand_ins))?))?;
    Ok(direct)
}

/// How a script failed that did not catch its error: what to tell, and where it happened.
fn failed(lua: &Lua, budget: &Budget, error: Value) -> mlua::Result<Table> {
    let place = stack::with(lua, |stack| stack.innermost());
    let told = told(lua, budget, &error)?;
    let table = lua.create_table_with_capacity(0, 3)?;
    table.raw_set("err", lua.create_string(told)?)?;
    if let Some((source, line)) = place {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

/// The line for an error that a script raised itself.
fn told(lua: &Lua, budget: &Budget, error: &Value) -> mlua::Result<Vec<u8>> {
    Ok(match error {
        // Nobody raises one but mlua, which says so of what has panicked.
        Value::Error(error) => line(error, budget.memory_max()),
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
