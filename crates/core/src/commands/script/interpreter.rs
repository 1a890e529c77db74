//! The interpreter of a server, for scripts that are not native. A server without one refuses such scripts here.
//!
//! Owns    the interpreter, which is created for the first such script.
//! Locks   shards first, the interpreter second. The script thread finds it free, because all that use it for longer run
//!         there. Any other thread that finds it taken is refused.

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::{OwnedRequest, Reply, Request};

use crate::commands::script::busy;
use crate::commands::script::cache::Script;
use crate::commands::script::context::ScriptContext;
use crate::commands::table;
use crate::scripts::Inputs;
use crate::scripts::interpreter::{Host, Interpreter, NewInterpreter, Source};
use crate::scripts::library::Loaded;
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
#[derive(Debug, Default)]
pub struct InterpreterSlot {
    create: Option<NewInterpreter>,
    created: Mutex<Option<Box<dyn Interpreter>>>,
}

fn knows(words: &[&[u8]]) -> bool {
    table().named(words).is_some()
}

fn source(script: &Script) -> Source<'_> {
    Source { name: script.hex(), text: script.body() }
}

impl InterpreterSlot {
    /// A slot whose interpreter is created so.
    pub(in crate::commands) fn new(create: Option<NewInterpreter>) -> Self {
        Self { create, created: Mutex::default() }
    }

    /// Whether the server runs scripts that are not native.
    pub(in crate::commands) fn is_present(&self) -> bool {
        self.create.is_some()
    }

    /// Bytes that the interpreter holds; zero while a script runs.
    pub fn memory(&self) -> usize {
        let created = self.created.try_lock();
        created.as_deref().and_then(Option::as_ref).map_or(0, |interpreter| interpreter.memory())
    }

    /// Drops the interpreter, so that its memory goes back to the allocator in whole. One that has libraries stays, and one
    /// that runs a script.
    pub(in crate::commands) fn purge(&self) {
        if let Some(mut slot) = self.created.try_lock() {
            slot.take_if(|interpreter| interpreter.is_replaceable());
        }
    }

    /// Forgets what it has compiled.
    pub(in crate::commands) fn flush(&self) {
        if let Some(interpreter) = self.created.lock().as_mut() {
            interpreter.flush();
        }
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
        let mut interpreter = self.ready(settings, may_block, || not_native(script))?;
        interpreter.compile(source(script)).map_err(Refusal::Quoted)
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
        let mut interpreter = self.ready(context.settings(), context.may_block(), absent)?;
        let watchdog = context.watch(run.script.hex(), None);
        let result = interpreter.run(source(run.script), run.inputs, context, watchdog, reply);
        result.map_err(Refusal::Quoted)
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
        let mut interpreter = self.ready(context.settings(), context.may_block(), absent)?;
        interpreter.load(body, context).map_err(Refusal::Quoted)
    }

    pub(in crate::commands) fn forget(&self, libraries: &[u32]) {
        if let Some(interpreter) = self.created.lock().as_mut() {
            interpreter.forget(libraries);
        }
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
        let mut interpreter = self.ready(context.settings(), context.may_block(), absent)?;
        let request = OwnedRequest::beginning(call.request, WORDS_SHOWN, WORD_BYTES_SHOWN);
        let watchdog = context.watch(call.name, Some(request));
        let result = interpreter.call((call.library, call.name), call.inputs, context, watchdog, reply);
        result.map_err(Refusal::Quoted)
    }

    /// The interpreter, created if need be. It is free where scripts run; EXEC on a worker, whose script was native when it
    /// was queued, may find it taken.
    ///
    /// # Errors
    /// `absent` in a server without one.
    fn ready(
        &self,
        settings: &Settings,
        may_block: bool,
        absent: impl FnOnce() -> Refusal,
    ) -> Result<MappedMutexGuard<'_, Box<dyn Interpreter>>, Refusal> {
        let create = self.create.ok_or_else(absent)?;
        let slot = if may_block { Some(self.created.lock()) } else { self.created.try_lock() };
        let mut slot = slot.ok_or_else(|| busy(false))?;
        match slot.as_mut() {
            Some(interpreter) => interpreter.set_memory_max(settings.get(settings::SCRIPT_MEMORY_LIMIT)),
            None => {
                let host = Host { version: settings.redis_version(), knows };
                *slot =
                    Some(create(settings.get(settings::SCRIPT_MEMORY_LIMIT), host).map_err(Refusal::Quoted)?);
            }
        }
        MutexGuard::try_map(slot, Option::as_mut)
            .map_err(|_| Refusal::said("ERR the interpreter did not start"))
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
