//! A case: one failure at one lock command of the explored program, two of them at two commands, or none.
//!
//! Owns    the kinds of failures, which lock commands each of them fits, and what the server does then.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::time::Duration;

use redlatch_client::wire::Connection;
use redlatch_core::types::slot::slot;
use redlatch_server::{Fault, Server, When};
use redlatch_testing::{Event, EventKind};

use super::point::{Deed, Point};
use super::problem::ProblemKind;
use super::rival;
use super::servers::{MASTERS, NODE_TIMEOUT, Servers};
use crate::common::exit::Failure;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    LostBefore,
    LostReply,
    Reset,
    Overtaken,
    Delayed,
    Late,
    AfterLease,
    Paused,
    Expired,
    Restart,
    RestartEmpty,
    ClockStep,
    NodeDown,
    FailOver,
    FailOverEmpty,
    SlotMoved,
}

/// A failure at a lock command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Injection {
    pub(super) kind: Kind,
    pub(super) point: Point,
}

/// What goes wrong in a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Case {
    /// One failure, or a pair in the order of their commands. The case without any is [`NO_FAILURE`].
    pub(super) injections: Vec<Injection>,
    /// Problems that one of a pair shows alone: they are no findings of the pair.
    pub(super) known: BTreeSet<ProblemKind>,
}

impl Kind {
    pub(super) const ALL: [Self; 16] = [
        Self::LostBefore,
        Self::LostReply,
        Self::Reset,
        Self::Overtaken,
        Self::Delayed,
        Self::Late,
        Self::AfterLease,
        Self::Paused,
        Self::Expired,
        Self::Restart,
        Self::RestartEmpty,
        Self::ClockStep,
        Self::NodeDown,
        Self::FailOver,
        Self::FailOverEmpty,
        Self::SlotMoved,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LostBefore => "lost-before",
            Self::LostReply => "lost-reply",
            Self::Reset => "reset",
            Self::Overtaken => "overtaken",
            Self::Delayed => "delayed",
            Self::Late => "late",
            Self::AfterLease => "after-lease",
            Self::Paused => "paused",
            Self::Expired => "expired",
            Self::Restart => "restart",
            Self::RestartEmpty => "restart-empty",
            Self::ClockStep => "clock-step",
            Self::NodeDown => "node-down",
            Self::FailOver => "fail-over",
            Self::FailOverEmpty => "fail-over-empty",
            Self::SlotMoved => "slot-moved",
        }
    }

    /// What happens to the command, in a sentence.
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::LostBefore => "it is lost: the connection is closed before it is executed",
            Self::LostReply => "it is executed, and the reply is lost: the connection is closed",
            Self::Reset => "it is lost: the connection is reset",
            Self::Overtaken => "it is executed behind what other clients ask within 100 ms",
            Self::Delayed => "it is executed when the lease has ended: its way to the server was long",
            Self::Late => "it is executed, and the reply comes when half of the lease has passed",
            Self::AfterLease => "it is executed, and the reply comes when the lease has ended",
            Self::Paused => {
                "it is executed and answered, and then the client stands still until the lease has ended"
            }
            Self::Expired => "it is executed, and then the key ends at once",
            Self::Restart => "it is executed, and the server restarts with its memory before the reply",
            Self::RestartEmpty => {
                "it is executed, and the server restarts without its memory before the reply"
            }
            Self::ClockStep => {
                "it is executed, and an administrator sets the clock an hour ahead before the late reply"
            }
            Self::NodeDown => "it is executed, and the node is down from then on",
            Self::FailOver => "it is executed, its node fails before the reply, and a replica takes over",
            Self::FailOverEmpty => {
                "it is executed, its node fails before the reply, and a replica takes over that has none of its keys"
            }
            Self::SlotMoved => "it is executed, and its slot moves to another node before the reply",
        }
    }

    /// Whether the explored command may fail then without being wrong: the server has failed, or the lock is lost.
    pub(super) const fn excuses_failure(self) -> bool {
        !matches!(self, Self::Overtaken | Self::Late | Self::ClockStep | Self::SlotMoved)
    }

    /// Whether the client has to connect again, and nothing else happens.
    const fn ends_connection(self) -> bool {
        matches!(self, Self::LostBefore | Self::LostReply | Self::Reset | Self::Restart | Self::RestartEmpty)
    }

    /// Whether the failure is tried at this lock command.
    fn fits(self, point: &Point, servers: Servers) -> bool {
        match self {
            _ if point.lacks_script => self.ends_connection(),
            Self::Paused | Self::Expired => matches!(point.deed, Deed::Acquire | Deed::Extend),
            Self::Delayed => matches!(point.deed, Deed::Extend | Deed::Release),
            Self::Overtaken => point.has_company,
            Self::NodeDown => servers.are_apart(),
            Self::FailOver | Self::FailOverEmpty | Self::SlotMoved => servers == Servers::Cluster,
            _ => true,
        }
    }
}

impl Case {
    /// No failure, and then every failure at every lock command, one in each case.
    pub(super) fn all(points: &[Point], servers: Servers) -> Vec<Self> {
        std::iter::once(Self::default()).chain(Injection::all(points, servers).map(Self::from)).collect()
    }

    /// Whether `wanted` names it, by its commands or by what they do.
    pub(super) fn is_named(&self, wanted: &str) -> bool {
        if self.injections.is_empty() {
            return wanted == NO_FAILURE;
        }
        let names: Vec<_> = wanted.split(AND).collect();
        let mut pairs = self.injections.iter().zip(&names);
        names.len() == self.injections.len() && pairs.all(|(injection, name)| injection.is_named(name))
    }

    /// Its name by what its commands do, which a change of the program does not change as soon as one by commands.
    pub(super) fn lasting_name(&self) -> String {
        self.joined(Injection::lasting_name)
    }

    /// Its commands and their locks, for the ID of a problem.
    pub(super) fn place(&self) -> String {
        self.joined(|injection| injection.point.place.clone())
    }

    fn joined(&self, name: impl Fn(&Injection) -> String) -> String {
        let names: Vec<_> = self.injections.iter().map(name).collect();
        if names.is_empty() { NO_FAILURE.to_owned() } else { names.join(AND) }
    }

    /// Whether one of its failures is such.
    pub(super) fn has(&self, is_such: impl Fn(&Injection) -> bool) -> bool {
        self.injections.iter().any(is_such)
    }

    /// Each of its commands as a run has it, and what happens to it, for people.
    pub(super) fn told_in(&self, events: &[Event]) -> impl Iterator<Item = (String, &'static str)> {
        self.injections.iter().map(|Injection { kind, point }| (point.line_in(events), kind.sentence()))
    }

    /// What happens to its commands.
    pub(super) fn sentences(&self) -> String {
        let sentences: Vec<_> = self.injections.iter().map(|injection| injection.kind.sentence()).collect();
        sentences.join("; ")
    }
}

impl From<Injection> for Case {
    fn from(injection: Injection) -> Self {
        Self { injections: vec![injection], known: BTreeSet::new() }
    }
}

impl Injection {
    /// Every failure at every lock command.
    pub(super) fn all(points: &[Point], servers: Servers) -> impl Iterator<Item = Self> {
        points.iter().flat_map(move |point| {
            let kinds = Kind::ALL.into_iter().filter(move |kind| kind.fits(point, servers));
            kinds.map(|kind| Self { kind, point: point.clone() })
        })
    }

    pub(super) fn is_named(&self, wanted: &str) -> bool {
        wanted == self.to_string() || wanted == self.lasting_name()
    }

    fn lasting_name(&self) -> String {
        format!("{}@{}", self.kind.name(), self.point.lasting_name())
    }

    /// Has the server fail at the lock command.
    ///
    /// # Errors
    /// The command has no fault: a defect of this program.
    pub(super) async fn arm<'s>(&self, server: &'s Server) -> Result<Fault<'s>, Failure> {
        if self.kind == Kind::FailOverEmpty {
            for master in 1..=MASTERS {
                server.nodes().replicate(master, false).await;
            }
        }
        let command = self.point.command.replace(' ', "|");
        let (faults, when) = (server.faults(), When::command(command).client(BY_SOCKET).nth(self.point.nth));
        let armed = match self.kind {
            Kind::LostBefore => faults.drop_before(when),
            Kind::LostReply => faults.drop_reply(when),
            Kind::Reset => faults.reset(when),
            Kind::Overtaken => faults.delay(OVERTAKEN, when),
            Kind::Delayed => faults.delay(self.passes(), when),
            Kind::Expired => faults.expire_key(when),
            Kind::Paused => faults.pause_client(self.passes(), when),
            // The reply is held until `follow` has done its part.
            Kind::Late | Kind::AfterLease | Kind::ClockStep => faults.stall(self.passes(), when),
            Kind::SlotMoved => faults.stall(NODE_TIMEOUT, when),
            Kind::Restart | Kind::RestartEmpty | Kind::NodeDown | Kind::FailOver | Kind::FailOverEmpty => {
                faults.stall(HOUR, when)
            }
        };
        armed.map_err(|error| Failure::misused(format!("{self}: {error}")))
    }

    /// What follows as soon as the fault has acted.
    pub(super) async fn follow(&self, server: &Server, servers: Servers) {
        let (clock, nodes, node) = (server.clock(), server.nodes(), self.point.node);
        match self.kind {
            Kind::LostBefore | Kind::LostReply | Kind::Reset | Kind::Overtaken => {}
            Kind::Expired => rival::take(server, servers).await,
            Kind::Late => clock.advance(self.passes()).await,
            Kind::Delayed | Kind::AfterLease | Kind::Paused => {
                clock.advance(self.point.lease + Duration::from_millis(1)).await;
                rival::take(server, servers).await;
                clock.advance(rival::TURN).await;
            }
            Kind::ClockStep => {
                clock.step_wall(HOUR.as_millis() as i64);
                clock.advance(self.passes()).await;
            }
            Kind::NodeDown => nodes.crash(node, false).await,
            Kind::Restart | Kind::RestartEmpty => {
                nodes.crash(node, self.kind == Kind::Restart).await;
                nodes.start(node).await;
            }
            Kind::FailOver | Kind::FailOverEmpty => {
                // Until then, what clients ask waits.
                let held = server.faults().delay(rival::TURN, When::any().client(BY_SOCKET));
                nodes.crash(node, false).await;
                clock.advance(NODE_TIMEOUT + Duration::from_millis(1)).await;
                if self.kind == Kind::FailOverEmpty {
                    rival::take(server, servers).await;
                }
                held.map(Fault::remove).expect("the conditions are right");
                clock.advance(rival::TURN).await;
            }
            Kind::SlotMoved => {
                move_slot(server, node).await;
                clock.advance(NODE_TIMEOUT).await;
            }
        }
    }

    /// How much time passes while the request, the reply, or the client is held up: far more than it takes to notice it.
    fn passes(&self) -> Duration {
        match self.kind {
            Kind::Delayed | Kind::AfterLease | Kind::Paused => self.point.lease + rival::TURN,
            _ => (self.point.lease / 2).max(Duration::from_millis(1)),
        }
    }
}

/// As `--case` reads it: one word, [`AND`] between two failures.
impl Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined(ToString::to_string))
    }
}

impl Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.kind.name(), self.point.name())
    }
}

/// Moves the slot of the lock about which a node was asked last to the next master.
async fn move_slot(server: &Server, node: u16) {
    let events = server.history().events();
    let is_about_key = |event: &&Event| event.kind != EventKind::Request && event.node == node;
    let Some(key) = events.iter().rev().filter(is_about_key).find_map(|event| event.key.as_ref()) else {
        return;
    };
    let (slot, to) = (slot(key).to_string(), (node % MASTERS + 1).to_string());
    let mut link = Connection::over(Box::new(server.nodes().stream(node)), Duration::from_secs(5));
    let moved = link.call(&[b"TEST.SLOT", b"MOVE", slot.as_bytes(), b"TO", to.as_bytes()]).await;
    debug_assert!(moved.is_ok(), "{moved:?}");
}

/// The name of the case without a failure.
pub(super) const NO_FAILURE: &str = "no-failure";
/// What stands between the failures of a pair.
pub(super) const AND: &str = "+";
/// Clients with an address, which the rival has not: it meets no failure.
const BY_SOCKET: &str = "*:*";
/// How long a request lets those of other clients pass: long enough for another thread or process to ask, and far less than
/// a lease.
const OVERTAKEN: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::super::point::tests::event;
    use super::*;

    #[test]
    fn each_lock_command_gets_the_failures_that_fit_it() {
        let kinds = |deed, servers| {
            let (command, line) = ("SET".to_owned(), String::new());
            let has_company = servers != Servers::Stores(1);
            let lacks_script = false;
            let point = Point {
                command,
                nth: 2,
                deed,
                nth_of_deed: 1,
                lease: Duration::from_secs(30),
                has_company,
                lacks_script,
                node: 1,
                line,
                place: String::new(),
            };
            let names: Vec<_> = Case::all(&[point], servers).iter().map(ToString::to_string).collect();
            let (first, others) = names.split_first().unwrap();
            assert_eq!(first, NO_FAILURE);
            others.to_vec()
        };
        let of_clusters = 3;
        assert_eq!(kinds(Deed::Extend, Servers::Cluster).len(), Kind::ALL.len() - 1, "without node-down");
        assert_eq!(kinds(Deed::Extend, Servers::Stores(3)).len(), Kind::ALL.len() - of_clusters);
        let of_acquire = kinds(Deed::Acquire, Servers::Stores(3));
        assert_eq!(of_acquire.len(), Kind::ALL.len() - of_clusters - 1, "without delayed: {of_acquire:?}");
        let of_release = kinds(Deed::Release, Servers::Stores(1));
        assert_eq!(
            of_release.len(),
            Kind::ALL.len() - of_clusters - 4,
            "without overtaken, paused, expired and node-down: {of_release:?}"
        );
        assert_eq!(of_release[0], "lost-before@SET:2");
    }

    #[test]
    fn a_case_is_named_by_its_commands_or_by_what_they_do() {
        let granted = Event { lease: Some(500), ..event(2, EventKind::Granted, "", Some(1)) };
        let released = event(4, EventKind::Released, "", Some(3));
        let events = [
            event(1, EventKind::Request, "SET", None),
            granted,
            event(3, EventKind::Request, "DEL", None),
            released,
        ];
        let injections = Point::all(&events).into_iter().map(|point| Injection { kind: Kind::Late, point });
        let mut case = Case { injections: injections.collect(), known: BTreeSet::new() };
        assert_eq!(case.lasting_name(), "late@acquire:1+late@release:1");
        for name in ["late@SET:1+late@DEL:1", "late@acquire:1+late@release:1", "late@SET:1+late@release:1"] {
            assert!(case.is_named(name), "{name}");
        }
        assert!(!case.is_named("late@acquire:1") && !case.is_named("late@release:1+late@acquire:1"));
        case.injections.truncate(1);
        assert!(case.is_named("late@acquire:1") && !case.is_named("late@acquire:1+late@release:1"));
    }
}
