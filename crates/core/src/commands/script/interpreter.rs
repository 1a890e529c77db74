//! The interpreter of a server, for scripts that are not native. A server without one refuses such scripts here.
//!
//! Owns    the interpreter, which is created for the first such script, and the charge for its memory.
//! Locks   shards first, the interpreter second. The script thread finds it free, because all that use it for longer run
//!         there. Any other thread that finds it taken is refused.

use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::{OwnedRequest, Reply, Request};

use crate::commands::script::busy;
use crate::commands::script::cache::Script;
use crate::commands::script::context::ScriptContext;
use crate::commands::table;
use crate::scripts::Inputs;
use crate::scripts::interpreter::{Failure, Host, Interpreter, NewInterpreter, Source};
use crate::scripts::library::Loaded;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::state::settings::{self, Settings};

/// A script, and its arguments.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Run<'a> {
    pub(in crate::commands) script: &'a Script,
    /// Its KEYS and ARGV.
    pub(in crate::commands) inputs: Inputs<'a>,
}

/// A call of a function.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Invocation<'a> {
    /// The id of its library in the interpreter.
    pub(in crate::commands) library: u32,
    pub(in crate::commands) name: &'a str,
    pub(in crate::commands) inputs: Inputs<'a>,
    /// The request that calls it.
    pub(in crate::commands) request: Request<'a>,
}

/// Words of a request that are kept while its function runs, for FUNCTION STATS.
const WORDS_SHOWN: usize = 32;
/// Bytes of each word that is kept.
const WORD_BYTES_SHOWN: usize = 128;

/// The place of the interpreter, which is empty until the first script that needs one, and always in a server without Lua.
#[derive(Debug)]
pub struct InterpreterSlot {
    create: Option<NewInterpreter>,
    created: Mutex<Option<Box<dyn Interpreter>>>,
    /// What the interpreter held when it was last used.
    charge: Charge,
}

fn knows(words: &[&[u8]]) -> bool {
    table().named(words).is_some()
}

fn source(script: &Script) -> Source<'_> {
    Source { name: script.hex(), text: script.body() }
}

impl InterpreterSlot {
    /// A slot whose interpreter is created so. Its memory is charged to `ledger`.
    pub(in crate::commands) fn new(create: Option<NewInterpreter>, ledger: &Arc<Ledger>) -> Self {
        Self { create, created: Mutex::default(), charge: ledger.open(Kind::Lua) }
    }

    /// Whether the server runs scripts that are not native.
    pub(in crate::commands) fn is_present(&self) -> bool {
        self.create.is_some()
    }

    /// Bytes that the interpreter holds; while a script runs, those before it.
    pub fn memory(&self) -> usize {
        self.charge.bytes()
    }

    /// Drops the interpreter, so that its memory goes back to the allocator in whole. One that has libraries stays, and one
    /// that runs a script.
    pub(in crate::commands) fn purge(&self) {
        if let Some(mut slot) = self.created.try_lock() {
            self.drop_unused(&mut slot);
        }
    }

    /// Forgets what it has compiled. An interpreter without libraries goes as a whole.
    pub(in crate::commands) fn flush(&self) {
        let mut slot = self.created.lock();
        slot.iter_mut().for_each(|interpreter| interpreter.flush());
        self.drop_unused(&mut slot);
    }

    /// Drops an interpreter without libraries, and charges what is left.
    fn drop_unused(&self, slot: &mut Option<Box<dyn Interpreter>>) {
        slot.take_if(|interpreter| interpreter.is_replaceable());
        self.charge.set(slot.as_ref().map_or(0, |interpreter| interpreter.memory()));
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// The message of the compiler, or that there is none.
    pub(in crate::commands) fn check(
        &self,
        script: &Script,
        settings: &Settings,
        may_block: bool,
    ) -> Result<(), Refusal> {
        self.with(
            settings,
            may_block,
            || not_native(script),
            |interpreter| interpreter.compile(source(script)),
        )
    }

    /// Runs a script, and writes what it returns.
    ///
    /// # Errors
    /// The error that ended it.
    pub(in crate::commands) fn run(
        &self,
        run: Run<'_>,
        context: &mut ScriptContext<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Refusal> {
        let absent = || not_native(run.script);
        self.with(context.settings(), context.may_block(), absent, |interpreter| {
            let watchdog = context.watch(run.script.hex(), None);
            interpreter.run(source(run.script), run.inputs, context, watchdog, reply)
        })
    }

    /// Runs the code of a library and returns the functions that it registers.
    ///
    /// # Errors
    /// The error that ended it.
    pub(in crate::commands) fn load(
        &self,
        body: &[u8],
        context: &mut ScriptContext<'_, '_>,
    ) -> Result<Loaded, Refusal> {
        let absent = || Refusal::said("ERR Engine 'lua' not found");
        let (settings, may_block) = (context.settings(), context.may_block());
        self.with(settings, may_block, absent, |interpreter| interpreter.load(body, context))
    }

    pub(in crate::commands) fn forget(&self, libraries: &[u32]) {
        let mut slot = self.created.lock();
        slot.iter_mut().for_each(|interpreter| interpreter.forget(libraries));
        self.drop_unused(&mut slot);
    }

    /// Calls a function, and writes what it returns.
    ///
    /// # Errors
    /// The error that ended it.
    pub(in crate::commands) fn call(
        &self,
        call: Invocation<'_>,
        context: &mut ScriptContext<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Refusal> {
        let absent = || Refusal::said("ERR Function not found");
        self.with(context.settings(), context.may_block(), absent, |interpreter| {
            let request = OwnedRequest::beginning(call.request, WORDS_SHOWN, WORD_BYTES_SHOWN);
            let watchdog = context.watch(call.name, Some(request));
            interpreter.call((call.library, call.name), call.inputs, context, watchdog, reply)
        })
    }

    /// Uses the interpreter, which is created if need be, and charges what it holds afterwards. It is free where scripts run;
    /// EXEC on a worker, whose script was native when it was queued, may find it taken.
    ///
    /// # Errors
    /// `absent` in a server without one; the error of `act`.
    fn with<R>(
        &self,
        settings: &Settings,
        may_block: bool,
        absent: impl FnOnce() -> Refusal,
        act: impl FnOnce(&mut dyn Interpreter) -> Result<R, Failure>,
    ) -> Result<R, Refusal> {
        let create = self.create.ok_or_else(absent)?;
        let slot = if may_block { Some(self.created.lock()) } else { self.created.try_lock() };
        let mut slot = slot.ok_or_else(|| busy(false))?;
        let memory_max = settings.get(settings::SCRIPT_MEMORY_LIMIT);
        let interpreter = match &mut *slot {
            Some(interpreter) => interpreter,
            none => {
                let host = Host { version: settings.redis_version(), knows };
                none.insert(create(memory_max, host).map_err(Refusal::Quoted)?)
            }
        };
        interpreter.set_memory_max(memory_max);
        let result = act(&mut **interpreter);
        self.charge.set(interpreter.memory());
        result.map_err(Refusal::Quoted)
    }
}

/// The error for a script that needs an interpreter.
fn not_native(script: &Script) -> Refusal {
    Refusal::said(format!(
        "ERR this server was built without Lua and runs native scripts only, and not script {}: native are the \
         releases, extensions, guarded reads and acquisitions of locks that lock clients send",
        script.hex()
    ))
}
