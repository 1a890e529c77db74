//! CLIENT INFO and CLIENT LIST: one line about each client.
//!
//! Rule    qbuf is bytes received whose request has not ended, as of the last pause of the connection, and qbuf-free the room
//!         behind them. argv-mem is the words of the command that this client is executing, or the keys that it waits for;
//!         those of a script or another long call are in qbuf. omem is bytes of replies and messages not yet sent. tot-mem
//!         is all of these, the decoder's and the fixed memory of a connection. There are no fixed output buffers: rbs, rbp
//!         and obl are 0.
//! Source  Redis 7.0 `catClientInfoString`; `watch`, `lib-name` and `lib-ver` of later versions; `session`, `waits-for`,
//!         `script` and `script-age` are our own.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::number::total;
use redlatch_proto::resp::Protocol;

use crate::commands::connection::filter::{Filter, Form};
use crate::commands::lock::reader::Reader;
use crate::commands::{Call, Outcome, Shared};
use crate::state::channels::Kind;
use crate::state::clients::Client;
use crate::state::lock_sessions;

pub(in crate::commands) fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let reader = Some(&Reader::UNLIMITED);
    let line = about(&call.session.client, call.shared, call.now.lock, (words_of(call), reader));

    call.reply.verbatim(&line);
    Ok(Outcome::Replied)
}

/// Bytes of the words of the request that is executed.
fn words_of(call: &Call<'_, '_>) -> u64 {
    let request = call.args.request();
    total((0..request.len()).map(|at| request.word(at).len() as u64))
}

/// The line about one client, which is executing a command whose words have so many bytes. Fields without a meaning here
/// have the value of an idle client of Redis. The line is for `reader`; for nobody, it has no lock session and no keys.
pub(in crate::commands) fn about(
    client: &Client,
    shared: &Shared,
    now: LockTime,
    (words, reader): (u64, Option<&Reader>),
) -> String {
    let names = client.names.lock().clone();
    let seconds = |since: u64| now.as_millis().saturating_sub(since) / 1000;
    let last = client.activity.last_command.load(Relaxed);
    let command = shared.commands.all().find(|command| command.index == last);
    let redirect = shared.registries.tracking.of(client.id, |tracker| tracker.redirect.unwrap_or(0));
    let unsent = client.unsent_bytes();
    let waited_for = client.waits_for(usize::MAX);
    let argv = total(waited_for.iter().map(|key| key.len() as u64).chain([words]));
    let waits_for = reader.map_or_else(String::new, |reader| waits_for(client, reader));
    let script = match shared.scripts.running.script_and_age(now) {
        Some((script, age_ms)) if script.client.id == client.id => {
            format!(" script={} script-age={}", script.name, age_ms / 1000)
        }
        _ => String::new(),
    };
    let session = match client.lock_session.load(Relaxed) {
        // The session can be taken over with its number.
        _ if reader.is_none_or(|reader| !reader.is_unlimited()) => String::new(),
        0 => String::new(),
        id => format!(" session={}", lock_sessions::name(id)),
    };
    let mut line =
        format!("id={} addr={} laddr={} fd=-1", client.id, client.address.peer, client.address.local);
    // Writing to a String cannot fail.
    let _ = writeln!(
        line,
        " name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} watch={} qbuf={} qbuf-free={} \
         argv-mem={argv} multi-mem={} rbs=0 rbp=0 obl=0 oll={} omem={} tot-mem={} events=r cmd={} user={} redir={} \
         resp={} lib-name={} lib-ver={}{session}{waits_for}{script}",
        names.name,
        seconds(client.since.as_millis()),
        seconds(client.activity.last_active_ms.load(Relaxed)),
        flags(client, shared),
        client.activity.database.load(Relaxed),
        client.subscribed(Kind::Channel),
        client.subscribed(Kind::Pattern),
        client.subscribed(Kind::Shard),
        client.transaction.queued().map_or(-1, i64::from),
        client.transaction.watching().0,
        client.buffers.query_bytes.load(Relaxed),
        client.buffers.query_room.load(Relaxed),
        client.transaction.queued_bytes.load(Relaxed),
        u8::from(unsent > 0),
        unsent,
        total([client.held_bytes(), argv]),
        command.map_or("NULL", |command| command.name.as_str()),
        client.login.account().map_or_else(String::new, |account| account.name().escape_ascii().to_string()),
        redirect.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX)),
        if client.protocol() == Protocol::Resp3 { 3 } else { 2 },
        names.library,
        names.library_version,
    );
    line
}

/// The field for the keys that a client waits for, as far as the reader may see them; empty if it waits for none. A byte
/// that separates keys, fields or lines, or that is not printable, is written as an escape.
fn waits_for(client: &Client, reader: &Reader) -> String {
    let mut field = String::new();
    for key in client.waits_for(KEYS_SHOWN).into_iter().filter(|key| reader.may_see(key)) {
        field.push_str(if field.is_empty() { " waits-for=" } else { "," });
        for byte in key.iter().take(KEY_BYTES_SHOWN) {
            // Writing to a String cannot fail.
            let _ = match byte {
                b' ' | b',' | b'=' => write!(field, "\\x{byte:02x}"),
                byte => write!(field, "{}", byte.escape_ascii()),
            };
        }
    }
    field
}

/// Keys that CLIENT LIST shows of those a client waits for.
const KEYS_SHOWN: usize = 8;
/// Bytes of such a key that it shows.
const KEY_BYTES_SHOWN: usize = 256;

/// The flags of a client in Redis' order; `N` if it has none.
pub(super) fn flags(client: &Client, shared: &Shared) -> String {
    let tracker = shared
        .registries
        .tracking
        .of(client.id, |tracker| (tracker.is_broken.load(Relaxed), tracker.prefixes.is_some()));
    let mut flags = String::new();
    for (flag, is_set) in [
        ('O', shared.monitors.contains(client.id)),
        ('P', client.is_subscribed()),
        ('x', client.transaction.queued().is_some()),
        ('b', client.is_blocked()),
        ('t', tracker.is_some()),
        ('R', tracker.is_some_and(|(is_broken, _)| is_broken)),
        ('B', tracker.is_some_and(|(_, is_broadcast)| is_broadcast)),
        ('d', client.transaction.watching().1),
        ('U', client.address.is_unix),
        ('e', client.options.no_evict.load(Relaxed)),
        ('T', client.options.no_touch.load(Relaxed)),
    ] {
        flags.extend(is_set.then_some(flag));
    }
    if flags.is_empty() { "N".to_owned() } else { flags }
}

/// The type of client in CLIENT LIST and CLIENT KILL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::commands) enum Type {
    /// A client without subscriptions.
    Normal,
    /// A master or replica; there are none.
    Replication,
    PubSub,
}

impl Type {
    /// Parses the type in CLIENT LIST TYPE or CLIENT KILL TYPE.
    ///
    /// # Errors
    /// There is no such type.
    pub(in crate::commands) fn parse(word: &[u8]) -> Result<Self, Refusal> {
        match word.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"master" | b"primary" | b"replica" | b"slave" => Ok(Self::Replication),
            b"pubsub" => Ok(Self::PubSub),
            _ => Err(Refusal::quoting("ERR Unknown client type '", word, "'")),
        }
    }

    /// The type of a client.
    pub(in crate::commands) fn of(client: &Client) -> Self {
        if client.is_subscribed() { Self::PubSub } else { Self::Normal }
    }
}

pub(in crate::commands) fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let found = Filter::parse(call, Form::List)?.find(call);

    let own = call.session.client.id;
    let (words, reader) = (words_of(call), Reader::of(call.session));
    let line = |client: &Arc<Client>| match client.id == own {
        true => about(client, call.shared, call.now.lock, (words, Some(&Reader::UNLIMITED))),
        false => about(client, call.shared, call.now.lock, (0, Some(&reader))),
    };
    let lines: String = found.iter().map(line).collect();

    call.reply.verbatim(&lines);
    Ok(Outcome::Replied)
}
