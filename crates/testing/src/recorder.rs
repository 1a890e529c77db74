//! The history of a namespace: the latest events of all its nodes, as many as fit.
//!
//! Owns    the events, and the requests that are not answered yet.
//! Time    comes in as an argument, see [`Moment`]; for grants and expiries, the clock of the node is read.
//! Locks   one mutex, under which nothing else is locked. The observer of a node takes it while shards are locked.
//! Bounds  [`EVENTS_MAX`] events and [`BYTES_MAX`] bytes; the oldest go first. Above `maxmemory` no history grows.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use redlatch_core::keyspace::{LockObserver, View};
use redlatch_core::locks::{EndReason, HolderRequest, LockChange, LockEvent, RequestEvent, RequestOutcome};
use redlatch_core::scripts::{Known, digest};
use redlatch_core::state::clients::{Client, ClientId};
use redlatch_core::state::ledger::{Charge, Kind, Ledger};
use redlatch_core::state::registries::Registries;
use redlatch_core::types::glob;
use redlatch_core::types::lock::LockKind;
use redlatch_proto::clock::{Clock, Now};

use super::event::{Event, EventKind, TAKES_OVER};
use super::reply_text::reply_text;

/// Events of one history.
const EVENTS_MAX: usize = 10_000;
/// Bytes of one history.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of an argument that are kept. The scripts of lock clients are shorter.
const ARG_BYTES_MAX: usize = 4096;
/// Arguments of a request that are kept.
const ARGS_MAX: usize = 128;
/// Bytes of a key that are kept.
const KEY_BYTES_MAX: usize = 1024;
/// TEST commands that are recorded: the others only look.
const RECORDED: &[&str] = &["TEST.CLOCK ", "TEST.FAULT ", "TEST.NODE "];

/// The history of a namespace.
pub struct Recorder(Mutex<History>);

/// When and where something happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// The number of the node.
    pub node: u16,
    /// The time of its clock, in Unix milliseconds.
    pub unix_ms: u64,
    /// The time of the system, in Unix microseconds.
    pub real_micros: u64,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those with a higher number.
    pub since: u64,
    /// Those about a key that matches this pattern.
    pub key: Option<Bytes>,
    /// Those of a command whose name matches this pattern.
    pub command: Option<Bytes>,
    /// Those of a client whose name or library matches this pattern, or that has this number.
    pub client: Option<Bytes>,
}

struct History {
    events: VecDeque<Event>,
    /// The bytes of the events.
    charge: Charge,
    /// Whether an event takes the place of older ones, because memory is short.
    is_full: bool,
    last_id: u64,
    /// The latest time of the system that is known.
    real_micros: u64,
    /// The clients, by node and number.
    clients: BTreeMap<(u16, ClientId), KnownClient>,
}

/// What is known of a client.
struct KnownClient {
    name: Arc<str>,
    library: Arc<str>,
    /// Its request that is not answered yet.
    open: Option<Open>,
}

/// A request that is not answered yet.
struct Open {
    id: u64,
    command: Arc<str>,
    keys: Vec<Bytes>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(&Arc::default())
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// An empty history, whose memory is charged to `ledger`.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        Self(Mutex::new(History {
            events: VecDeque::new(),
            charge: ledger.open(Kind::Namespaces),
            is_full: false,
            last_id: 0,
            real_micros: 0,
            clients: BTreeMap::new(),
        }))
    }

    /// Records what happens to the locks of one node.
    pub fn observer(self: &Arc<Self>, node: u16, clock: Arc<dyn Clock>) -> Box<dyn LockObserver> {
        Box::new(NodeObserver { recorder: Arc::clone(self), node, clock })
    }

    /// Whether memory is short: the history does not grow then.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.0.lock().is_full = is_full;
    }

    /// A client has gone.
    pub fn disconnected(&self, moment: Moment, client: ClientId) {
        self.0.lock().disconnected(moment, client);
    }

    /// A node has crashed: all its clients have gone, before anything that they had ends.
    pub fn crashed(&self, moment: Moment) {
        let mut history = self.0.lock();
        let clients = history.clients.keys().filter(|(node, _)| *node == moment.node);
        let clients: Vec<ClientId> = clients.map(|(_, client)| *client).collect();
        clients.into_iter().for_each(|client| history.disconnected(moment, client));
    }

    /// A client has sent a request, without passwords. A request that is tried again is not recorded again. A client
    /// counts as connected from its first request on.
    pub fn request(&self, moment: Moment, client: &Client, command: &str, args: &[&[u8]], keys: &[&[u8]]) {
        if command.starts_with("TEST.") && !RECORDED.iter().any(|recorded| command.starts_with(recorded)) {
            return;
        }
        let mut history = self.0.lock();
        if !history.clients.contains_key(&(moment.node, client.id)) {
            history.know(moment, client);
            let text = if client.address.peer.is_empty() { "this process" } else { &client.address.peer };
            let event = Event { text: Some(text.to_owned()), ..Event::new(EventKind::Connect) };
            history.push(moment, Some(client.id), event);
        }
        if history.know(moment, client).open.is_some() {
            return;
        }
        let command: Arc<str> = command.into();
        let keys: Vec<Bytes> = keys.iter().take(ARGS_MAX).map(|key| shortened(key, KEY_BYTES_MAX)).collect();
        let event = Event {
            text: known_script(&command, args),
            args: shortened_args(args),
            key: keys.first().cloned(),
            command: Some(Arc::clone(&command)),
            ..Event::new(EventKind::Request)
        };
        let id = history.push(moment, Some(client.id), event);
        history.know(moment, client).open = Some(Open { id, command, keys });
    }

    /// The request of a client is done, and has no reply: CLIENT REPLY has muted it, or a fault has taken it.
    pub fn unanswered(&self, moment: Moment, client: &Client) {
        self.0.lock().close(moment, client);
    }

    /// The request of a client was answered with these bytes.
    pub fn reply(&self, moment: Moment, client: &Client, bytes: &[u8]) {
        let mut history = self.0.lock();
        let Some(open) = history.close(moment, client) else { return };
        history.know(moment, client);
        let event = Event {
            request: Some(open.id),
            key: open.keys.first().cloned(),
            command: Some(open.command),
            reply: Some(reply_text(bytes)),
            ..Event::new(EventKind::Reply)
        };
        history.push(moment, Some(client.id), event);
    }

    /// A fault has acted on the request of a client.
    pub fn fault(&self, moment: Moment, client: &Client, fault: u64, text: String) {
        let mut history = self.0.lock();
        let open = history.know(moment, client).open.as_ref();
        let mut event = Event { fault: Some(fault), text: Some(text), ..Event::new(EventKind::Fault) };
        if let Some(open) = open {
            event.request = Some(open.id);
            event.key = open.keys.first().cloned();
            event.command = Some(Arc::clone(&open.command));
        }
        history.push(moment, Some(client.id), event);
    }

    /// A node has taken over from its master.
    pub fn failover(&self, now: Now, node: u16, master: u16) {
        let mut history = self.0.lock();
        let moment = Moment { node, unix_ms: now.wall().as_millis(), real_micros: history.real_micros };
        let text = Some(format!("{TAKES_OVER}{master}"));
        history.push(moment, None, Event { text, ..Event::new(EventKind::Failover) });
    }

    /// The events that are asked for, oldest first, at most `count`.
    pub fn events(&self, filter: &Filter, count: usize) -> Vec<Event> {
        let history = self.0.lock();
        history.events.iter().filter(|event| filter.fits(event)).take(count).cloned().collect()
    }

    /// How often each command was called.
    pub fn calls(&self, filter: &Filter) -> BTreeMap<Arc<str>, usize> {
        let history = self.0.lock();
        let mut calls = BTreeMap::new();
        for event in history.events.iter().filter(|event| event.kind == EventKind::Request) {
            if let Some(command) = event.command.as_ref().filter(|_| filter.fits(event)) {
                *calls.entry(Arc::clone(command)).or_default() += 1;
            }
        }
        calls
    }
}

impl History {
    /// What is known of a client, with its names as they are now.
    fn know(&mut self, moment: Moment, client: &Client) -> &mut KnownClient {
        let names = client.names.lock();
        let known = self.clients.entry((moment.node, client.id)).or_insert_with(|| KnownClient {
            name: "".into(),
            library: "".into(),
            open: None,
        });
        if *known.name != *names.name {
            known.name = names.name.as_str().into();
        }
        if *known.library != *names.library {
            known.library = names.library.as_str().into();
        }
        known
    }

    /// A client has gone, if it was there.
    fn disconnected(&mut self, moment: Moment, client: ClientId) {
        if self.clients.contains_key(&(moment.node, client)) {
            self.push(moment, Some(client), Event::new(EventKind::Disconnect));
            self.clients.remove(&(moment.node, client));
        }
    }

    /// The request of a client is not open any more.
    fn close(&mut self, moment: Moment, client: &Client) -> Option<Open> {
        self.clients.get_mut(&(moment.node, client.id))?.open.take()
    }

    /// Adds an event about a client. Returns its number.
    fn push(&mut self, moment: Moment, client: Option<ClientId>, mut event: Event) -> u64 {
        self.last_id += 1;
        self.real_micros = self.real_micros.max(moment.real_micros);
        event.id = self.last_id;
        event.at = moment.unix_ms;
        event.real = self.real_micros;
        event.node = moment.node;
        event.client = client;
        if let Some((name, library)) = client.and_then(|client| self.names_of(moment.node, client)) {
            (event.name, event.library) = (name, library);
        }
        let bytes_max = if self.is_full { self.charge.bytes().min(BYTES_MAX) } else { BYTES_MAX };
        self.charge.add(event.bytes());
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || self.charge.bytes() > bytes_max {
            self.charge.sub(self.events.pop_front().map_or(self.charge.bytes(), |oldest| oldest.bytes()));
        }
        self.last_id
    }

    /// The name and the library of a client. Of one that has gone, whose lock may still end, those that its last event has.
    fn names_of(&self, node: u16, client: ClientId) -> Option<(Arc<str>, Arc<str>)> {
        if let Some(known) = self.clients.get(&(node, client)) {
            return Some((Arc::clone(&known.name), Arc::clone(&known.library)));
        }
        let is_its = |event: &&Event| event.node == node && event.client == Some(client);
        let last = self.events.iter().rfind(is_its)?;
        Some((Arc::clone(&last.name), Arc::clone(&last.library)))
    }

    /// The request of a client that is not answered yet.
    fn request_of(&self, node: u16, client: ClientId) -> Option<u64> {
        self.clients.get(&(node, client))?.open.as_ref().map(|open| open.id)
    }

    /// Records what has happened to a lock.
    fn changed(&mut self, moment: Moment, event: &LockEvent) {
        // A lock of a session has no lease that could be renewed.
        if matches!(event.change, LockChange::Renewed(_)) && event.session.is_some() {
            return;
        }
        let (kind, request) = match &event.change {
            // A request that waits may be granted by the request of another client.
            LockChange::Granted => (EventKind::Granted, [event.client, event.author]),
            LockChange::Renewed(_) => (EventKind::Renewed, [event.author, event.client]),
            LockChange::Ended(EndReason::Expired, _) => (EventKind::Expired, [0, 0]),
            LockChange::Ended(..) => (EventKind::Released, [event.author, 0]),
        };
        let text = match &event.change {
            LockChange::Ended(EndReason::Expired | EndReason::Released, _) => None,
            LockChange::Ended(reason, _) => Some(reason.name()),
            _ if event.session.is_some() => Some("session"),
            _ => matches!(event.kind, LockKind::Shared | LockKind::Permits(_)).then_some("shared"),
        };
        let begins = matches!(kind, EventKind::Granted | EventKind::Renewed);
        let owner = event.owner.as_ref().filter(|owner| !owner.is_empty());
        let recorded = Event {
            request: request.into_iter().find_map(|client| self.request_of(moment.node, client)),
            key: Some(shortened(&event.key, KEY_BYTES_MAX)),
            token: Some(event.token),
            holder: owner.map(|owner| shortened(owner, KEY_BYTES_MAX)),
            lease: event.lease_ms.filter(|_| begins),
            text: text.map(str::to_owned),
            ..Event::new(kind)
        };
        self.push(moment, Some(event.client).filter(|client| *client != 0), recorded);
    }

    /// Records what a request has come to, unless that is an event of the lock. A request for several locks waits for each.
    fn asked(&mut self, moment: Moment, request: &RequestEvent) {
        let (kind, text, keys) = match request.outcome {
            RequestOutcome::NotHeld(_) if request.owner.is_none() => return,
            RequestOutcome::NotHeld(HolderRequest::Extend) => (EventKind::Missed, Some("extends"), 1),
            RequestOutcome::NotHeld(HolderRequest::Release) => (EventKind::Missed, Some("releases"), 1),
            RequestOutcome::NotHeld(HolderRequest::Transfer) => (EventKind::Missed, Some("transfers"), 1),
            RequestOutcome::Refused(_) | RequestOutcome::TimedOut | RequestOutcome::Unblocked => {
                (EventKind::Refused, None, 1)
            }
            RequestOutcome::Waits => (EventKind::Waits, None, usize::MAX),
            RequestOutcome::Abandoned | RequestOutcome::Granted { .. } => return,
        };
        for key in request.keys.iter().take(keys) {
            let event = Event {
                request: self.request_of(moment.node, request.client),
                key: Some(shortened(key, KEY_BYTES_MAX)),
                holder: request.owner.as_ref().map(|owner| shortened(owner, KEY_BYTES_MAX)),
                text: text.map(str::to_owned),
                ..Event::new(kind)
            };
            self.push(moment, Some(request.client), event);
        }
    }
}

impl Filter {
    fn fits(&self, event: &Event) -> bool {
        let fits = |pattern: &Option<Bytes>, text: Option<&[u8]>| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| glob::matches(pattern, text)))
        };
        let names_client = |pattern: &Bytes| {
            let names = [event.name.as_bytes(), event.library.as_bytes()];
            let number = event.client.map(|client| client.to_string()).unwrap_or_default();
            names.into_iter().any(|name| glob::matches(pattern, name)) || number.as_bytes() == pattern
        };
        let fits_command = self.command.as_ref().is_none_or(|pattern| {
            let command = event.command.as_ref().map(|command| command.as_bytes());
            command.is_some_and(|command| glob::matches_ignoring_case(pattern, command))
        });
        let is_named = |pattern: &Bytes| event.args.iter().any(|word| glob::matches(pattern, word));
        let fits_key = fits(&self.key, event.key.as_deref())
            || (event.key.is_some() && self.key.as_ref().is_some_and(is_named));
        event.id > self.since && fits_key && fits_command && self.client.as_ref().is_none_or(names_client)
    }
}

/// Sees what happens to the locks of one node.
struct NodeObserver {
    recorder: Arc<Recorder>,
    node: u16,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for NodeObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeObserver").field("node", &self.node).finish_non_exhaustive()
    }
}

impl NodeObserver {
    fn moment(&self, now: Now, history: &History) -> Moment {
        Moment { node: self.node, unix_ms: now.wall().as_millis(), real_micros: history.real_micros }
    }
}

impl LockObserver for NodeObserver {
    fn wants_all(&self) -> bool {
        true
    }

    fn see(&self, event: &LockEvent, _view: &mut View<'_>, _registries: &Registries) {
        let (mut history, now) = (self.recorder.0.lock(), self.clock.now());
        let moment = self.moment(now, &history);
        history.changed(moment, event);
    }

    fn key_expired(&self, key: &Bytes) {
        let (mut history, now) = (self.recorder.0.lock(), self.clock.now());
        let moment = self.moment(now, &history);
        let event = Event { key: Some(shortened(key, KEY_BYTES_MAX)), ..Event::new(EventKind::Expired) };
        history.push(moment, None, event);
    }

    fn asked(&self, event: &RequestEvent, _view: &mut View<'_>, _registries: &Registries) {
        let (mut history, now) = (self.recorder.0.lock(), self.clock.now());
        let moment = self.moment(now, &history);
        history.asked(moment, event);
    }
}

fn shortened(bytes: &[u8], bytes_max: usize) -> Bytes {
    Bytes::copy_from_slice(&bytes[..bytes.len().min(bytes_max)])
}

fn shortened_args(args: &[&[u8]]) -> Vec<Bytes> {
    let mut kept: Vec<Bytes> = args.iter().take(ARGS_MAX).map(|arg| shortened(arg, ARG_BYTES_MAX)).collect();
    if args.len() > ARGS_MAX {
        kept.push(format!("... ({} more arguments)", args.len() - ARGS_MAX).into());
    }
    kept
}

/// The known script that a request runs: `redis-py Lock: release`.
fn known_script(command: &str, args: &[&[u8]]) -> Option<String> {
    let first = args.first()?;
    let sha = match command {
        "EVAL" | "EVAL_RO" => digest(first),
        "EVALSHA" | "EVALSHA_RO" => (*first)
            .try_into()
            .ok()
            .map(|sha: redlatch_core::scripts::Sha| sha.map(|digit| digit.to_ascii_lowercase()))?,
        _ => return None,
    };
    Known::find(&sha).map(|known| known.client.to_owned())
}

#[cfg(test)]
mod tests;
