//! The locks that this process has taken, and what the agent is told of them.
//!
//! Owns    a task for each lock that has a connection of its own, on which the server tells its loss and who waits.
//! Rule    each event is told twice: by a notification at once, and with the next answer, which is what a model reads.
//! Time    a lock is over at the end of its lease as this process counts it, if the server says nothing: the connection
//!         may be gone.

// The protocol of 2026-07-28 deprecates messages; hosts of older ones show them.
#![expect(deprecated, reason = "there is no other notification for what happens to a lock")]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redlatch_client::{Hold, HoldEvent, HoldEvents, Lost};
use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::Peer;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::locks::texts;

/// What names a lock of this process: the key and the owner.
pub(super) type Id = (Vec<u8>, Vec<u8>);

#[derive(Debug, Default)]
pub(super) struct Holds {
    held: Mutex<HashMap<Id, Known>>,
    notices: Mutex<VecDeque<Notice>>,
    /// The least level that the client asks for; `None`: it asks for no messages.
    level: Mutex<Option<LoggingLevel>>,
}

/// A lock that was taken here.
#[derive(Debug)]
struct Known {
    token: Option<u64>,
    /// The end of its lease. `None`: it has none.
    deadline: watch::Sender<Option<Instant>>,
    /// The task that hears of it.
    listener: AbortHandle,
}

/// What the agent has not been told yet.
#[derive(Debug)]
struct Notice {
    id: Id,
    is_loss: bool,
    text: String,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self { level: Mutex::new(Some(LoggingLevel::Info)), ..Self::default() }
    }

    pub(super) fn set_level(&self, level: Option<LoggingLevel>) {
        *self.level.lock() = level;
    }

    /// The token under which this process holds the lock; `None` if it does not.
    pub(super) fn token(&self, id: &Id) -> Option<Option<u64>> {
        self.held.lock().get(id).map(|known| known.token)
    }

    /// Listens to what happens to a lock that was granted. Returns whether this process had taken it before.
    pub(super) fn taken(
        self: &Arc<Self>,
        id: Id,
        hold: &Hold,
        events: Option<HoldEvents>,
        peer: Peer<RoleServer>,
    ) -> bool {
        let mut held = self.held.lock();
        // Beyond the bound the lock is held all the same, and nothing is told of it.
        let events = events.filter(|_| held.len() < HOLDS_TOLD_MAX || held.contains_key(&id));
        let (deadline, deadlines) = watch::channel(deadline(hold));
        let listener = Listener { holds: Arc::clone(self), id: id.clone(), token: hold.token, peer };
        let listener = tokio::spawn(listener.listen(events, deadlines)).abort_handle();
        let before = held.insert(id, Known { token: hold.token, deadline, listener });
        let was_held = before.as_ref().is_some_and(|before| before.token == hold.token);
        before.inspect(|before| before.listener.abort());
        was_held
    }

    /// The lease of a lock has begun anew. A hold with another token was taken by another process.
    pub(super) fn renewed(&self, id: &Id, hold: &Hold) {
        if let Some(known) = self.held.lock().get(id).filter(|known| known.token == hold.token) {
            known.deadline.send_replace(deadline(hold));
        }
    }

    /// The agent knows that the lock is held no longer.
    pub(super) fn ended(&self, id: &Id) {
        self.held.lock().remove(id).inspect(|known| known.listener.abort());
        self.notices.lock().retain(|notice| notice.is_loss || notice.id != *id);
    }

    /// What has happened since this was called last.
    pub(super) fn take_notices(&self) -> Vec<String> {
        self.notices.lock().drain(..).map(|notice| notice.text).collect()
    }
}

fn deadline(hold: &Hold) -> Option<Instant> {
    hold.remaining().map(|left| Instant::now() + left)
}

/// The task that hears of one lock.
struct Listener {
    holds: Arc<Holds>,
    id: Id,
    token: Option<u64>,
    peer: Peer<RoleServer>,
}

impl Listener {
    async fn listen(self, mut events: Option<HoldEvents>, mut deadlines: watch::Receiver<Option<Instant>>) {
        let lost = loop {
            let deadline = *deadlines.borrow_and_update();
            // While the connection lasts, the server says it first.
            let grace = if events.is_some() { GRACE } else { Duration::ZERO };
            let event = tokio::select! {
                event = next(&mut events) => event,
                changed = deadlines.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = end(deadline, grace) => Some(HoldEvent::Lost(Lost::Expired)),
            };
            match event {
                Some(HoldEvent::Lost(lost)) => break lost,
                Some(_) => self.tell(None).await,
                None => events = None,
            }
        };
        // From here on nobody aborts this task: the agent is told.
        self.holds.held.lock().remove(&self.id);
        self.tell(Some(lost)).await;
    }

    /// Tells that the lock is lost, or that somebody waits for it.
    async fn tell(&self, lost: Option<Lost>) {
        let [key, owner] = [&self.id.0, &self.id.1].map(|bytes| texts::readable(bytes));
        let (event, level, text) = match &lost {
            Some(lost) => {
                let text = format!("lost: {owner} holds {key} no longer: {lost}");
                ("lock-lost", LoggingLevel::Warning, text)
            }
            None => {
                let text = format!("contended: somebody waits for {key}, which {owner} holds");
                ("lock-contended", LoggingLevel::Notice, text)
            }
        };
        {
            let mut notices = self.holds.notices.lock();
            // One notice of each kind says all.
            notices.retain(|notice| notice.id != self.id || notice.is_loss);
            notices.push_back(Notice { id: self.id.clone(), is_loss: lost.is_some(), text: text.clone() });
            if notices.len() > NOTICES_MAX {
                notices.pop_front();
            }
        }
        let mut data = json!({ "event": event, "token": self.token, "text": text });
        texts::insert(&mut data, "key", &self.id.0);
        texts::insert(&mut data, "owner", &self.id.1);
        let is_wanted = self.holds.level.lock().is_some_and(|least| least as u8 <= level as u8);
        if is_wanted {
            let message = LoggingMessageNotificationParam::new(level, data).with_logger("redlatch");
            // The client may have gone.
            let _ = self.peer.notify_logging_message(message).await;
        }
    }
}

/// The next event; `None` when the connection has ended.
async fn next(events: &mut Option<HoldEvents>) -> Option<HoldEvent> {
    match events {
        Some(events) => events.next().await.ok(),
        None => std::future::pending().await,
    }
}

/// Returns some time after a deadline.
async fn end(deadline: Option<Instant>, grace: Duration) {
    match deadline {
        Some(deadline) => sleep_until(deadline + grace).await,
        None => std::future::pending().await,
    }
}

/// Locks with a connection on which they are told of.
const HOLDS_TOLD_MAX: usize = 100;
/// What is remembered of an agent that calls no tool.
const NOTICES_MAX: usize = 100;
/// For how long after the end of a lease, as this process counts it, the server may say why the lock ended.
const GRACE: Duration = Duration::from_secs(5);
