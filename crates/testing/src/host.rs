//! What test commands ask of the process around the engines: [`Host`], which the shell implements.
//!
//! Rule    a change that takes a while answers through [`Pending`]: the client waits as for a blocking command.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_core::state::clients::ClientId;
use redlatch_core::state::wait::Pending;
use redlatch_proto::clock::LockTime;

/// The process around the engines, as one namespace uses it.
pub trait Host: Send + Sync {
    /// All namespaces of the process.
    fn namespaces(&self) -> Vec<NamespaceFacts>;

    /// Removes a namespace and disconnects its clients; false if there is none of this name.
    fn drop_namespace(&self, name: &str) -> bool;

    /// The nodes of the namespace.
    fn nodes(&self) -> Vec<NodeFacts>;

    /// Changes the state of a node, and answers OK.
    fn change_node(&self, node: u16, change: NodeChange, pending: Pending);

    /// Runs this on a thread that may wait for requests to end.
    fn run_apart(&self, work: Box<dyn FnOnce() + Send>);

    /// The clock of the namespace, with at most `count` deadlines; `None` if the namespace has been dropped.
    fn clock(&self, count: usize) -> Option<ClockFacts>;

    /// Changes the clock of the namespace, and answers its time.
    fn change_clock(&self, change: ClockChange, pending: Pending);
}

/// A namespace, as TEST.NAMESPACE LIST shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Connected clients of all its nodes.
    pub clients: usize,
    /// Keys of all its nodes.
    pub keys: usize,
    /// Whether its time passes.
    pub mode: Mode,
}

/// Whether the time of a namespace passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// It passes as usual.
    Running,
    /// It stands still.
    Frozen,
    /// It stands still while clients are active, and goes to the next deadline when they are not.
    Auto,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Running, Self::Frozen, Self::Auto];

    /// Its name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Auto => "auto",
        }
    }
}

/// What TEST.CLOCK does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClockChange {
    /// Time stands still.
    Freeze,
    /// Time passes.
    Run,
    /// Time moves forward by so many milliseconds.
    Advance(u64),
    /// Time moves forward to this Unix time, in milliseconds.
    Set(i64),
    /// Time moves forward to the next deadline.
    Next,
    /// Time stands still, and moves to the next deadline whenever all clients have been silent for so many milliseconds.
    Auto {
        /// Real time, in milliseconds.
        idle_ms: u64,
    },
    /// Time stays where it is.
    AutoOff,
    /// The wall clock is stepped by so many milliseconds.
    StepWall(i64),
}

/// The clock of a namespace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClockFacts {
    /// Whether it passes.
    pub mode: Mode,
    /// The Unix time, in milliseconds.
    pub unix_ms: u64,
    /// The time that leases are measured in.
    pub lock: LockTime,
    /// The next deadlines, in their order.
    pub deadlines: Vec<Deadline>,
}

/// Something that is due at some time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deadline {
    /// When, in Unix milliseconds.
    pub unix_ms: u64,
    /// Milliseconds until then.
    pub in_ms: u64,
    /// What is due.
    pub of: DeadlineOf,
    /// The node it is due on.
    pub node: u16,
}

/// What is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DeadlineOf {
    /// The end of a key, or of fields of a hash.
    Key(Bytes),
    /// The timeout of a command that waits.
    Wait(ClientId),
    /// The end of CLIENT PAUSE.
    Pause,
}

impl DeadlineOf {
    /// Its name in replies.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Wait(_) => "wait",
            Self::Pause => "pause",
        }
    }
}

/// Whether a node answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeState {
    /// It answers.
    Up,
    /// Its connections stay open, and nothing is read or answered.
    Paused,
    /// Its connections are reset.
    Crashed,
}

impl NodeState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Up, Self::Paused, Self::Crashed];

    /// Its name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Paused => "paused",
            Self::Crashed => "crashed",
        }
    }
}

/// A node, as TEST.NODE LIST shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeFacts {
    /// Its number, from 1 on.
    pub node: u16,
    /// Its TCP port; 0 without one.
    pub port: u64,
    /// Whether it answers.
    pub state: NodeState,
    /// How far its clock is ahead of that of the namespace, in milliseconds.
    pub skew_ms: i64,
    /// Patterns of the clients that it does not answer.
    pub partitions: Vec<Bytes>,
    /// Its connected clients.
    pub clients: usize,
    /// Its keys.
    pub keys: usize,
}

/// What TEST.NODE does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeChange {
    /// It resets its connections.
    Crash {
        /// Whether its keys are still there afterwards.
        keeps_keys: bool,
    },
    /// It answers again after a crash.
    Start,
    /// It answers nothing.
    Pause,
    /// It answers again after a pause.
    Resume,
    /// Its clock is so many milliseconds ahead.
    Skew(i64),
    /// It does not answer clients that match this pattern.
    Partition(Bytes),
    /// The other nodes and it do not hear each other.
    Isolate,
    /// It answers all clients and nodes.
    Heal,
    /// Whether its writes reach its replicas.
    Replication {
        /// False: they are acknowledged and go no further.
        is_on: bool,
    },
}
