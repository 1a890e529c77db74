//! The process around the engine of a transcript, as TEST commands see it: one namespace, one node, a clock without steps.

use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_core::engine::{Engine, Flow};
use redlatch_core::state::session::Session;
use redlatch_core::state::wait::Pending;
use redlatch_proto::clock::Clock;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;
use redlatch_testing::{
    ClockChange, ClockFacts, DEFAULT_NAMESPACE, Holds, Host, Mode, NamespaceFacts, NodeChange, NodeFacts,
    NodeState, Testing, commands,
};

use super::clock::StillClock;

/// The test backend of an engine with this clock.
pub(crate) fn testing(clock: Arc<StillClock>) -> Testing {
    Testing {
        namespace: Arc::from(DEFAULT_NAMESPACE),
        node: 1,
        is_local: false,
        faults: Arc::default(),
        recorder: Arc::default(),
        host: Arc::new(Process { clock, mode: Mutex::new(Mode::Running) }),
        holds: Holds::default(),
        ledger: Arc::default(),
    }
}

/// Notes a request in the history, as the shell does.
pub(crate) fn note_request(engine: &Engine, session: &Session, request: Request<'_>) {
    if let Some(testing) = Testing::of(engine.shared()) {
        commands::note_request(testing, &session.client, (engine.shared().clock.now(), REAL_MICROS), request);
    }
}

/// Notes the reply to a request that does not wait.
pub(crate) fn note_reply(engine: &Engine, session: &Session, flow: Flow, reply: &[u8]) {
    if let Some(testing) = Testing::of(engine.shared())
        && matches!(flow, Flow::Next | Flow::Close)
    {
        let moment = commands::moment(testing, engine.shared().clock.now(), REAL_MICROS);
        testing.recorder.reply(moment, &session.client, reply);
    }
}

/// The time of the system, in microseconds.
const REAL_MICROS: u64 = 1_700_000_009_000_000;

struct Process {
    clock: Arc<StillClock>,
    /// What the clock says of itself. It stands still in any case.
    mode: Mutex<Mode>,
}

impl Host for Process {
    fn namespaces(&self) -> Vec<NamespaceFacts> {
        let mode = *self.mode.lock();
        vec![NamespaceFacts { name: Arc::from(DEFAULT_NAMESPACE), clients: 1, keys: 0, mode }]
    }

    fn drop_namespace(&self, _: &str) -> bool {
        false
    }

    fn nodes(&self) -> Vec<NodeFacts> {
        vec![NodeFacts {
            node: 1,
            port: 6379,
            state: NodeState::Up,
            skew_ms: 0,
            partitions: Vec::new(),
            clients: 1,
            keys: 0,
        }]
    }

    fn change_node(&self, _: u16, _: NodeChange, pending: Pending) {
        pending.answer(|reply| reply.ok());
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn clock(&self, _: usize) -> Option<ClockFacts> {
        let (now, mode) = (self.clock.now(), *self.mode.lock());
        Some(ClockFacts { mode, unix_ms: now.wall().as_millis(), lock: now.lock, deadlines: Vec::new() })
    }

    fn change_clock(&self, change: ClockChange, pending: Pending) {
        let forward_ms = match change {
            ClockChange::Advance(millis) => millis,
            ClockChange::Set(unix_ms) => {
                let now_ms = i64::try_from(self.clock.now().wall().as_millis()).expect("it is not that late");
                match u64::try_from(unix_ms - now_ms) {
                    Ok(millis) => millis,
                    Err(_) => return pending.refuse(&Refusal::said("ERR that time has passed")),
                }
            }
            _ => 0,
        };
        self.clock.set_ms(self.clock.now_ms() + forward_ms);
        match change {
            ClockChange::Auto { .. } => *self.mode.lock() = Mode::Auto,
            ClockChange::AutoOff | ClockChange::Freeze => *self.mode.lock() = Mode::Frozen,
            ClockChange::Run => *self.mode.lock() = Mode::Running,
            _ => {}
        }
        let unix_ms = self.clock.now().wall().as_millis();
        match change {
            ClockChange::Auto { .. } | ClockChange::AutoOff => pending.answer(|reply| reply.ok()),
            ClockChange::Next => pending.answer(|reply| reply.null()),
            _ => pending.answer(|reply| reply.count(usize::try_from(unix_ms).expect("it is not that late"))),
        }
    }
}
