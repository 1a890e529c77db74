//! One event of a history: what happened, when, to whom; and its forms as fields and as a line.
//!
//! Owns    [`Event`], and the names of its fields, which replies and the command line share.
//! Rule    an event that is written as fields reads back equal.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_core::state::clients::ClientId;

/// What happened.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum EventKind {
    /// A client has connected.
    Connect,
    /// A client has gone.
    Disconnect,
    /// A client has sent a request.
    Request,
    /// A request was answered.
    Reply,
    /// A lock was granted.
    Granted,
    /// The lease of a lock began anew.
    Renewed,
    /// A lock has ended before its lease.
    Released,
    /// A lease has ended, or another key has expired.
    Expired,
    /// A client was refused a lock.
    Refused,
    /// A client waits for a lock.
    Waits,
    /// A client would extend, release or transfer a lock that its owner does not hold.
    Missed,
    /// A fault has acted.
    Fault,
    /// A replica has taken over from its master.
    Failover,
}

/// One event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Its number; later events have higher ones.
    pub id: u64,
    /// What happened.
    pub kind: EventKind,
    /// When, by the clock of the namespace: Unix milliseconds.
    pub at: u64,
    /// When, by the clock of the system: Unix microseconds. Of events that no request reads it for: when the latest one did.
    pub real: u64,
    /// The number of the node.
    pub node: u16,
    /// The client that it is about: the sender, or the holder of a lock.
    pub client: Option<ClientId>,
    /// The name of the client, as CLIENT SETNAME gave it.
    pub name: Arc<str>,
    /// The library of the client, as CLIENT SETINFO gave it.
    pub library: Arc<str>,
    /// The request that the event belongs to.
    pub request: Option<u64>,
    /// The name of the command, in upper case; of a subcommand, both words.
    pub command: Option<Arc<str>>,
    /// The words behind the name, shortened. Passwords are left out.
    pub args: Vec<Bytes>,
    /// The key, or the first key of the request.
    pub key: Option<Bytes>,
    /// The reply as text, shortened.
    pub reply: Option<String>,
    /// The fencing token of the lock.
    pub token: Option<u64>,
    /// The value under which the lock is held, or asked for, shortened.
    pub holder: Option<Bytes>,
    /// The lease in milliseconds, of a grant or a renewal that has one.
    pub lease: Option<u64>,
    /// The number of the fault.
    pub fault: Option<u64>,
    /// Something for readers: the script that is known, the address of a client, what a fault does, why a lock has ended,
    /// whose slots a replica has taken over, and what a client would have done with a lock that it does not hold.
    pub text: Option<String>,
}

/// The value of a field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Field {
    /// A number.
    Number(u64),
    /// Bytes, mostly text.
    Text(Bytes),
    /// Several of them.
    List(Vec<Bytes>),
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::Connect,
        Self::Disconnect,
        Self::Request,
        Self::Reply,
        Self::Granted,
        Self::Renewed,
        Self::Released,
        Self::Expired,
        Self::Refused,
        Self::Waits,
        Self::Missed,
        Self::Fault,
        Self::Failover,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::Waits => "waits",
            Self::Missed => "missed",
            Self::Fault => "fault",
            Self::Failover => "failover",
        }
    }

    fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

impl Event {
    /// An event of which only the kind is known.
    pub fn new(kind: EventKind) -> Self {
        Self {
            id: 0,
            kind,
            at: 0,
            real: 0,
            node: 1,
            client: None,
            name: "".into(),
            library: "".into(),
            request: None,
            command: None,
            args: Vec::new(),
            key: None,
            reply: None,
            token: None,
            holder: None,
            lease: None,
            fault: None,
            text: None,
        }
    }

    /// Approximate bytes of memory.
    pub fn bytes(&self) -> usize {
        let args: usize = self.args.iter().map(|word| word.len() + size_of::<Bytes>()).sum();
        let texts = [self.reply.as_ref().map(String::len), self.text.as_ref().map(String::len)];
        let keys = [self.key.as_ref().map(Bytes::len), self.holder.as_ref().map(Bytes::len)];
        let others: usize = texts.into_iter().chain(keys).flatten().sum();
        size_of::<Self>() + args + others + self.name.len() + self.library.len()
    }

    /// The fields that apply, with their names.
    pub fn fields(&self) -> Vec<(&'static str, Field)> {
        let text =
            |text: &str| (!text.is_empty()).then(|| Field::Text(Bytes::copy_from_slice(text.as_bytes())));
        let number = |number: Option<u64>| number.map(Field::Number);
        let bytes = |bytes: &Option<Bytes>| bytes.clone().map(Field::Text);
        let has_args = self.kind == EventKind::Request;
        let all = [
            ("id", Some(Field::Number(self.id))),
            ("kind", text(self.kind.name())),
            ("at", Some(Field::Number(self.at))),
            ("real", Some(Field::Number(self.real))),
            ("node", Some(Field::Number(self.node.into()))),
            ("client", number(self.client)),
            ("name", text(&self.name)),
            ("library", text(&self.library)),
            ("request", number(self.request)),
            ("command", self.command.as_deref().and_then(text)),
            ("args", has_args.then(|| Field::List(self.args.clone()))),
            ("key", bytes(&self.key)),
            ("reply", self.reply.as_ref().map(|reply| Field::Text(Bytes::copy_from_slice(reply.as_bytes())))),
            ("token", number(self.token)),
            ("holder", bytes(&self.holder)),
            ("lease", number(self.lease)),
            ("fault", number(self.fault)),
            ("text", self.text.as_deref().and_then(text)),
        ];
        all.into_iter().filter_map(|(name, field)| Some((name, field?))).collect()
    }

    /// The event of these fields. `None` if one that every event has is missing.
    pub fn of_fields(get: impl Fn(&'static str) -> Option<Field>) -> Option<Self> {
        let number = |name| match get(name)? {
            Field::Number(number) => Some(number),
            _ => None,
        };
        let bytes = |name| match get(name)? {
            Field::Text(text) => Some(text),
            _ => None,
        };
        let text = |name| bytes(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let kind = EventKind::of(&bytes("kind")?)?;
        Some(Self {
            id: number("id")?,
            at: number("at")?,
            real: number("real").unwrap_or(0),
            node: u16::try_from(number("node").unwrap_or(1)).ok()?,
            client: number("client"),
            name: text("name").unwrap_or_default().into(),
            library: text("library").unwrap_or_default().into(),
            request: number("request"),
            command: text("command").map(Arc::from),
            args: match get("args") {
                Some(Field::List(args)) => args,
                _ => Vec::new(),
            },
            key: bytes("key"),
            reply: text("reply"),
            token: number("token"),
            holder: bytes("holder"),
            lease: number("lease"),
            fault: number("fault"),
            text: text("text"),
            ..Self::new(kind)
        })
    }

    /// The client as readers know it: its name, or else its number.
    pub fn who(&self) -> String {
        match self.client {
            _ if !self.name.is_empty() => shown(self.name.as_bytes(), WORD_CHARS_MAX),
            Some(client) => format!("client {client}"),
            None => "nobody".to_owned(),
        }
    }

    /// The time of day by the clock of the namespace, in UTC.
    pub fn time(&self) -> String {
        let (seconds, millis) = (self.at / 1000 % 86_400, self.at % 1000);
        format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }

    /// What happened, without the time and the client.
    pub fn what(&self) -> String {
        let key = self.key.as_ref().map(|key| shown(key, WORD_CHARS_MAX)).unwrap_or_default();
        let token = self.token.map(|token| format!(" token {token}")).unwrap_or_default();
        let text = self.text.as_deref().unwrap_or_default();
        match self.kind {
            EventKind::Connect => format!("connects from {text}"),
            EventKind::Disconnect => "disconnects".to_owned(),
            EventKind::Request => {
                // A known script has a name, which says more than its text or its SHA-1.
                let known = (!text.is_empty()).then(|| format!(" ({text})"));
                let words = self.args.iter().skip(usize::from(known.is_some()));
                let words: String = words.map(|word| format!(" {}", shown(word, WORD_CHARS_MAX))).collect();
                let command = self.command.as_deref().unwrap_or_default();
                format!("{command}{}{words}", known.unwrap_or_default())
            }
            EventKind::Reply => {
                format!("-> {}", shown(self.reply.as_deref().unwrap_or_default().as_bytes(), 60))
            }
            EventKind::Granted => format!("holds {key}{}", self.terms(&token)),
            EventKind::Renewed => format!("renews {key}{}", self.terms(&token)),
            EventKind::Released => format!("holds {key} no more,{token}"),
            EventKind::Expired if self.token.is_some() => format!("the lease of {key} has ended,{token}"),
            EventKind::Expired => format!("{key} has expired"),
            EventKind::Refused => format!("is refused {key}"),
            EventKind::Waits => format!("waits for {key}"),
            EventKind::Missed => format!("{text} {key}, which it does not hold"),
            EventKind::Fault => format!("fault {}: {text}", self.fault.unwrap_or(0)),
            EventKind::Failover => format!("node {} {text}", self.node),
        }
    }

    fn terms(&self, token: &str) -> String {
        match self.lease {
            Some(lease) => format!(",{token} for {lease} ms"),
            None => format!(",{token} without a lease"),
        }
    }

    /// The node whose master it was until this failover.
    pub(super) fn failed_master(&self) -> Option<u16> {
        let text = self.text.as_deref().filter(|_| self.kind == EventKind::Failover)?;
        text.strip_prefix(TAKES_OVER)?.parse().ok()
    }

    /// The event as one line for readers.
    pub fn line(&self) -> String {
        let is_named = self.node == 1 || self.kind == EventKind::Failover;
        let node = if is_named { String::new() } else { format!(" on node {}", self.node) };
        match self.client {
            None => format!("{} #{}{node} {}", self.time(), self.id, self.what()),
            Some(_) => format!("{} #{} {}{node}: {}", self.time(), self.id, self.who(), self.what()),
        }
    }
}

/// What the text of a failover begins with; the number of the master that has failed follows.
pub(super) const TAKES_OVER: &str = "takes over from node ";

/// Bytes as readable characters, at most so many.
pub fn shown(bytes: &[u8], chars_max: usize) -> String {
    let escaped = match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    };
    match escaped.char_indices().nth(chars_max) {
        None if escaped.is_empty() => "\"\"".to_owned(),
        None => escaped,
        Some(_) => {
            let kept: String = escaped.chars().take(chars_max.saturating_sub(3)).collect();
            format!("{kept}...")
        }
    }
}

/// Characters of a word in a line.
const WORD_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            id: 12,
            at: 1_700_000_000_123,
            real: 1_700_000_000_123_456,
            client: Some(3),
            name: "worker-1".into(),
            library: "redis-py".into(),
            command: Some("SET".into()),
            args: ["lock", "a \"b\"\n", "NX"].map(Bytes::from).to_vec(),
            key: Some("lock".into()),
            ..Event::new(EventKind::Request)
        }
    }

    #[test]
    fn an_event_reads_back_from_its_fields() {
        let grant = Event {
            token: Some(7),
            holder: Some(Bytes::from_static(b"\xff")),
            lease: Some(0),
            request: Some(12),
            ..Event { args: Vec::new(), command: None, kind: EventKind::Granted, ..event() }
        };
        for event in [event(), grant, Event::new(EventKind::Expired)] {
            let fields = event.fields();
            let get = |name| fields.iter().find(|(other, _)| *other == name).map(|(_, field)| field.clone());
            assert_eq!(Event::of_fields(get), Some(event));
        }
        assert_eq!(Event::of_fields(|_| None), None);
    }

    #[test]
    fn a_line_names_the_time_the_client_and_what_happened() {
        assert_eq!(
            event().line(),
            "22:13:20.123 #12 worker-1: SET lock a \"b\"\\n NX".replace("a \"b\"", "a \\\"b\\\"")
        );
        let expired = Event { key: Some("k".into()), client: None, ..Event::new(EventKind::Expired) };
        assert_eq!(expired.line(), "00:00:00.000 #0 k has expired");
        let long = Event { args: vec!["x".repeat(99).into()], node: 2, ..event() };
        assert!(long.line().ends_with(&format!("worker-1 on node 2: SET {}...", "x".repeat(37))));
    }
}
