//! What faults do to one connection: they hold it up, close it, repeat its requests, end its keys.
//!
//! Owns    the faults of one connection that are not over: [`ConnectionFaults`].
//! Rule    a request meets its faults once, although it may have to be tried several times.
//! Rule    what a fault does behind a request that waits, it does when the request has been answered.
//! Time    that of the node.

use bytes::Bytes;
use redlatch_core::engine::{Batch, Engine, Flow};
use redlatch_core::state::session::{Replies, Session};
use redlatch_proto::clock::LockTime;
use redlatch_proto::resp::Request;

use crate::{Action, Testing, expire_keys, keys_of, meet_fault, recording};

/// The faults of one connection that are not over.
#[derive(Debug, Default)]
pub struct ConnectionFaults {
    /// The request at the front of the input has met its faults: what one of them does to it, if one acts.
    front: Option<Option<Action>>,
    /// What happens once the waiting request has been answered.
    behind: Option<Behind>,
    /// What the connection is held up by.
    hold: Option<Hold>,
    /// Whether the connection is closed in the middle of its replies.
    is_broken_off: bool,
    /// Whether the connection is closed by a reset.
    resets: bool,
}

/// What a request has led to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// It has been executed or refused, or cannot be executed yet.
    Done(Flow),
    /// The connection is held up.
    Held {
        /// Until when.
        until: LockTime,
        /// Whether the request has been executed. Otherwise it is executed then.
        is_done: bool,
    },
    /// It waits, and is executed again when it has been answered.
    WaitAndRepeat,
}

/// What a fault does behind a request.
#[derive(Debug)]
struct Behind {
    action: Action,
    keys: Vec<Bytes>,
    database: u16,
}

#[derive(Debug)]
struct Hold {
    /// The reply that is sent afterwards.
    reply: Vec<u8>,
    /// Whether messages of other clients are held up, too.
    is_silent: bool,
    /// Whether the connection is closed afterwards.
    closes: bool,
}

/// A request, with all that executing it takes.
struct Attempt<'a, 'r> {
    engine: &'a Engine,
    session: &'a mut Session,
    request: Request<'r>,
    batch: &'a mut Batch,
    out: &'a mut Vec<u8>,
}

impl Attempt<'_, '_> {
    fn execute(&mut self) -> Flow {
        self.engine.execute(self.session, self.request, self.batch, self.out)
    }

    /// Executes the request as if the client wanted no reply.
    fn execute_muted(&mut self) -> Flow {
        let replies = std::mem::replace(&mut self.session.replies, Replies::Off);
        let flow = self.execute();
        // CLIENT REPLY itself may have changed it.
        if self.session.replies == Replies::Off {
            self.session.replies = replies;
        }
        flow
    }
}

impl ConnectionFaults {
    /// Whether the next request has not been tried before.
    pub fn is_new(&self) -> bool {
        self.front.is_none()
    }

    /// Executes one request with what a fault does to it.
    pub fn execute(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        request: Request<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Progress {
        let action = match self.front.take() {
            Some(action) => action,
            None => meet_fault(engine.shared(), session, request).map(|hit| {
                recording::fault(engine.shared(), session, &hit);
                hit.action
            }),
        };
        let mut attempt = Attempt { engine, session, request, batch, out };
        match action {
            None => {
                let flow = attempt.execute();
                Progress::Done(self.note(flow, None))
            }
            Some(Action::Delay(millis)) => {
                self.front = Some(None);
                let hold = Hold { reply: Vec::new(), is_silent: false, closes: false };
                Progress::Held { until: self.hold(engine, attempt.session, millis, hold), is_done: false }
            }
            Some(Action::DropBefore) => Progress::Done(self.break_off()),
            Some(Action::Duplicate) => self.execute_twice(&mut attempt),
            Some(Action::Error(text)) => {
                engine.refuse_request(attempt.session, request, &text, attempt.out);
                Progress::Done(Flow::Next)
            }
            Some(Action::Reset) => {
                self.resets = true;
                Progress::Done(self.break_off())
            }
            Some(action) => self.execute_before(action, &mut attempt),
        }
    }

    /// Notes a request that comes again. It does not meet its faults again; `action` is what they do to it then.
    fn note(&mut self, flow: Flow, action: Option<Action>) -> Flow {
        if matches!(flow, Flow::Again(_) | Flow::Offload) {
            self.front = Some(action);
        }
        flow
    }

    /// Executes a request, and then does what a fault does behind it.
    fn execute_before(&mut self, action: Action, attempt: &mut Attempt<'_, '_>) -> Progress {
        let keys = match action {
            Action::ExpireKey => keys_of(attempt.engine.shared(), attempt.session, attempt.request),
            _ => Vec::new(),
        };
        let (database, mark) = (attempt.session.database, attempt.out.len());
        let flow = attempt.execute();
        let behind = Behind { action, keys, database };
        match flow {
            Flow::Next | Flow::Close => {
                self.finish(attempt.engine, attempt.session, behind, flow, (mark, attempt.out))
            }
            Flow::Wait => {
                self.behind = Some(behind);
                Progress::Done(flow)
            }
            Flow::Again(_) | Flow::Offload => Progress::Done(self.note(flow, Some(behind.action))),
        }
    }

    /// Executes a request without its reply, and once more.
    fn execute_twice(&mut self, attempt: &mut Attempt<'_, '_>) -> Progress {
        match attempt.execute_muted() {
            Flow::Next => {
                let flow = attempt.execute();
                Progress::Done(self.note(flow, None))
            }
            Flow::Wait => {
                self.front = Some(None);
                Progress::WaitAndRepeat
            }
            flow => Progress::Done(self.note(flow, Some(Action::Duplicate))),
        }
    }

    /// The waiting request has been answered: its reply begins at `mark` in `out`.
    pub fn finish_wait(
        &mut self,
        engine: &Engine,
        session: &Session,
        (mark, out): (usize, &mut Vec<u8>),
    ) -> Progress {
        let progress = match self.behind.take() {
            None => Progress::Done(Flow::Next),
            Some(behind) => self.finish(engine, session, behind, Flow::Next, (mark, &mut *out)),
        };
        recording::resumed(engine.shared(), session, &out[mark..]);
        progress
    }

    /// Does what a fault does behind a request, whose reply begins at `mark` in `out`.
    fn finish(
        &mut self,
        engine: &Engine,
        session: &Session,
        behind: Behind,
        flow: Flow,
        (mark, out): (usize, &mut Vec<u8>),
    ) -> Progress {
        let closes = flow == Flow::Close;
        let (millis, reply) = match behind.action {
            Action::DropAfter => {
                out.truncate(mark);
                return Progress::Done(self.break_off());
            }
            Action::HalfReply => {
                out.truncate(mark + (out.len() - mark) / 2);
                return Progress::Done(self.break_off());
            }
            Action::ExpireKey => {
                expire_keys(engine.shared(), behind.database, &behind.keys);
                return Progress::Done(flow);
            }
            Action::PauseClient(millis) => (millis, Vec::new()),
            Action::Stall(millis) => (millis, out.split_off(mark)),
            Action::Delay(_) | Action::DropBefore | Action::Duplicate | Action::Error(_) | Action::Reset => {
                return Progress::Done(flow);
            }
        };
        let hold = Hold { reply, is_silent: true, closes };
        Progress::Held { until: self.hold(engine, session, millis, hold), is_done: true }
    }

    fn hold(&mut self, engine: &Engine, session: &Session, millis: u64, hold: Hold) -> LockTime {
        let until = engine.shared().clock.now().lock + millis;
        self.hold = Some(hold);
        show_hold(engine, session, Some(until));
        until
    }

    /// The connection is no longer held up: appends the reply that was. Returns whether the connection is closed now.
    pub fn end_hold(&mut self, engine: &Engine, session: &Session, out: &mut Vec<u8>) -> bool {
        show_hold(engine, session, None);
        let Some(hold) = self.hold.take() else { return false };
        out.extend_from_slice(&hold.reply);
        recording::resumed(engine.shared(), session, &hold.reply);
        hold.closes
    }

    fn break_off(&mut self) -> Flow {
        self.is_broken_off = true;
        Flow::Close
    }

    /// Whether messages of other clients must not be sent now.
    pub fn is_silent(&self) -> bool {
        self.is_broken_off || self.hold.as_ref().is_some_and(|hold| hold.is_silent)
    }

    /// Whether the connection is closed by a reset.
    pub fn resets(&self) -> bool {
        self.resets
    }
}

/// Lets the clock of the node see until when a client is held up.
fn show_hold(engine: &Engine, session: &Session, until: Option<LockTime>) {
    if let Some(testing) = Testing::of(engine.shared()) {
        testing.holds.set(session.client.id, until);
    }
}
