//! The interpreter of a server, for scripts that are not native. A build without Lua refuses such scripts here.
//!
//! Owns    the Lua state, which is created for the first such script.
//! Locks   shards first, the interpreter second. The script thread finds it free, because all that use it for longer run
//!         there. Any other thread that finds it taken is refused.

use crate::commands::script::cache::Script;
use crate::commands::script::context::ScriptContext;
use crate::error::Refusal;
use crate::resp::{Reply, Request};
use crate::scripts::Inputs;
use crate::state::settings::Settings;

/// A script, and its arguments.
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "nothing runs without Lua"))]
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Run<'a> {
    pub(in crate::commands) script: &'a Script,
    /// Its KEYS and ARGV.
    pub(in crate::commands) inputs: Inputs<'a>,
}

/// A call of a function.
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "nothing runs without Lua"))]
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
#[cfg(feature = "lua")]
const WORDS_SHOWN: usize = 32;
/// Bytes of each word that is kept.
#[cfg(feature = "lua")]
const WORD_BYTES_SHOWN: usize = 128;

#[cfg(feature = "lua")]
pub(in crate::commands) use with_lua::Interpreter;
#[cfg(not(feature = "lua"))]
pub(in crate::commands) use without_lua::Interpreter;

#[cfg(feature = "lua")]
mod with_lua {
    use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

    use super::{
        Invocation, Refusal, Reply, Run, Script, ScriptContext, Settings, WORD_BYTES_SHOWN, WORDS_SHOWN,
    };
    use crate::commands::script::busy;
    use crate::commands::{VERSION, table};
    use crate::resp::OwnedRequest;
    use crate::scripts::library::Loaded;
    use crate::scripts::lua::{self, Host, Source};

    /// The Lua state, once it is needed.
    #[derive(Debug, Default)]
    pub struct Interpreter(Mutex<Option<lua::Interpreter>>);

    const HOST: Host = Host { version: VERSION, knows };

    fn knows(words: &[&[u8]]) -> bool {
        table().named(words).is_some()
    }

    fn source(script: &Script) -> Source<'_> {
        Source { name: script.hex(), text: script.body() }
    }

    impl Interpreter {
        /// Bytes that the Lua state holds; zero while a script runs.
        pub fn memory(&self) -> usize {
            self.0.try_lock().as_deref().and_then(Option::as_ref).map_or(0, lua::Interpreter::memory)
        }

        /// Drops the Lua state, so that its memory goes back to the allocator in whole. One that has libraries stays, and
        /// one that runs a script.
        pub(in crate::commands) fn purge(&self) {
            if let Some(mut slot) = self.0.try_lock() {
                slot.take_if(|interpreter| interpreter.is_replaceable());
            }
        }

        /// Forgets what it has compiled.
        pub(in crate::commands) fn flush(&self) {
            if let Some(interpreter) = self.0.lock().as_mut() {
                interpreter.flush();
            }
        }

        /// Compiles a script.
        ///
        /// # Errors
        /// The message of the compiler.
        pub(in crate::commands) fn check(
            &self,
            script: &Script,
            settings: &Settings,
            may_block: bool,
        ) -> Result<(), Refusal> {
            self.ready(settings, may_block)?.compile(source(script)).map_err(Refusal::Quoted)
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
            let mut interpreter = self.ready(context.settings(), context.may_block())?;
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
            self.ready(context.settings(), context.may_block())?.load(body, context).map_err(Refusal::Quoted)
        }

        pub(in crate::commands) fn forget(&self, libraries: &[u32]) {
            if let Some(interpreter) = self.0.lock().as_mut() {
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
            let mut interpreter = self.ready(context.settings(), context.may_block())?;
            let name = call.name;
            let request = OwnedRequest::beginning(call.request, WORDS_SHOWN, WORD_BYTES_SHOWN);
            let watchdog = context.watch(name, Some(request));
            let result = interpreter.call(call.library, name, call.inputs, context, watchdog, reply);
            result.map_err(Refusal::Quoted)
        }

        /// The interpreter, created if need be. It is free where scripts run; EXEC on a worker, whose script was native when
        /// it was queued, may find it taken.
        fn ready(
            &self,
            settings: &Settings,
            may_block: bool,
        ) -> Result<MappedMutexGuard<'_, lua::Interpreter>, Refusal> {
            let slot = if may_block { Some(self.0.lock()) } else { self.0.try_lock() };
            let mut slot = slot.ok_or_else(|| busy(false))?;
            if slot.is_none() {
                *slot =
                    Some(lua::Interpreter::new(settings.script_bytes_max(), HOST).map_err(Refusal::Quoted)?);
            }
            if let Some(interpreter) = slot.as_mut() {
                interpreter.set_memory_max(settings.script_bytes_max());
            }
            MutexGuard::try_map(slot, Option::as_mut)
                .map_err(|_| Refusal::said("ERR the interpreter did not start"))
        }
    }
}

#[cfg(not(feature = "lua"))]
mod without_lua {
    use super::{Invocation, Refusal, Reply, Run, Script, ScriptContext, Settings};
    use crate::scripts::library::Loaded;

    /// No interpreter.
    #[derive(Debug, Default)]
    pub struct Interpreter(());

    impl Interpreter {
        /// Bytes that it holds: none.
        pub fn memory(&self) -> usize {
            0
        }

        pub(in crate::commands) fn purge(&self) {}

        pub(in crate::commands) fn flush(&self) {}

        pub(in crate::commands) fn check(
            &self,
            script: &Script,
            _: &Settings,
            _: bool,
        ) -> Result<(), Refusal> {
            Err(not_native(script.hex()))
        }

        pub(in crate::commands) fn run(
            &self,
            run: Run<'_>,
            _: &mut ScriptContext<'_, '_>,
            _: &mut Reply<'_>,
        ) -> Result<(), Refusal> {
            Err(not_native(run.script.hex()))
        }

        pub(in crate::commands) fn load(
            &self,
            _: &[u8],
            _: &mut ScriptContext<'_, '_>,
        ) -> Result<Loaded, Refusal> {
            Err(Refusal::said("ERR Engine 'lua' not found"))
        }

        pub(in crate::commands) fn forget(&self, _: &[u32]) {}

        pub(in crate::commands) fn call(
            &self,
            _: Invocation<'_>,
            _: &mut ScriptContext<'_, '_>,
            _: &mut Reply<'_>,
        ) -> Result<(), Refusal> {
            Err(Refusal::said("ERR Function not found"))
        }
    }

    /// The error for a script that needs an interpreter.
    fn not_native(hex: &str) -> Refusal {
        Refusal::said(format!(
            "ERR this server was built without Lua and runs native scripts only, and not script {hex}: native are the \
             releases, extensions, guarded reads and acquisitions of locks that lock clients send"
        ))
    }
}
