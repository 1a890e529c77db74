//! Publish and subscribe, and client-side caching: requests and messages.
//!
//! Rule    a subscribed client sends no script and no writing transaction: Redis 7.0 writes the messages that these cause
//!         for their own client into the middle of the reply.

use std::collections::BTreeSet;

use super::grammar::Words;
use crate::support::reply::Reply;
use crate::support::rng::Rng;

/// A request of a subscribed client, about channels, patterns and invalidations.
pub(crate) fn by_listener(rng: &mut Rng) -> Words {
    match rng.below(16) {
        0..5 => {
            let name = rng.pick(&["SUBSCRIBE", "PSUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]);
            with_channels(name, 1 + rng.below(3), rng)
        }
        5..7 => {
            let name = rng.pick(&["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"]);
            with_channels(name, rng.below(3), rng)
        }
        7 if rng.one_in(4) => spell(&["RESET"]),
        8 => spell(&["PING"]),
        9 => spell(&["PING", "there"]),
        10 | 11 => tracking(false, rng),
        _ => by_anybody(true, rng),
    }
}

/// A request of any client: it publishes, asks for subscribers, or tracks other clients' writes; its own reads and writes
/// are tracked only if it does not run scripts (`runs_scripts`).
pub(crate) fn by_anybody(runs_scripts: bool, rng: &mut Rng) -> Words {
    match rng.below(12) {
        0..4 => spell(&["PUBLISH", rng.pick(CHANNELS), rng.pick(MESSAGES)]),
        4 => spell(&["SPUBLISH", rng.pick(CHANNELS), rng.pick(MESSAGES)]),
        5 => match rng.below(6) {
            0 => spell(&["PUBSUB", "CHANNELS"]),
            1 => spell(&["PUBSUB", "CHANNELS", rng.pick(PATTERNS)]),
            2 => spell(&["PUBSUB", "NUMSUB", rng.pick(CHANNELS), rng.pick(CHANNELS)]),
            3 => spell(&["PUBSUB", "NUMPAT"]),
            4 => spell(&["PUBSUB", "SHARDCHANNELS"]),
            _ => spell(&["PUBSUB", "SHARDNUMSUB", rng.pick(CHANNELS), "c9"]),
        },
        6 => spell(&["CLIENT", "CACHING", rng.pick(&["YES", "NO", "yes", "maybe"])]),
        7 => spell(&["CLIENT", rng.pick(&["TRACKINGINFO", "GETREDIR", "ID"])]),
        _ => tracking(runs_scripts, rng),
    }
}

/// The requests of a subscribed client's transaction: none of them causes a message to itself.
pub(crate) fn in_transaction(rng: &mut Rng) -> Words {
    match rng.below(5) {
        0 => with_channels("SUBSCRIBE", 1, rng),
        1 => with_channels("PSUBSCRIBE", 1, rng),
        2 => with_channels("UNSUBSCRIBE", 1, rng),
        3 => with_channels("SSUBSCRIBE", 1, rng),
        _ => spell(&["ECHO", "within"]),
    }
}

fn with_channels(name: &str, count: usize, rng: &mut Rng) -> Words {
    let pool = if name.starts_with('P') { PATTERNS } else { CHANNELS };
    let mut words = spell(&[name]);
    words.extend((0..count).map(|_| rng.pick(pool).as_bytes().to_vec()));
    words
}

fn tracking(runs_scripts: bool, rng: &mut Rng) -> Words {
    let mut words = spell(&["CLIENT", "TRACKING", rng.pick(&["ON", "on", "ON", "ON", "OFF", "maybe"])]);
    let mut add = |some: &[&str]| words.extend(spell(some));
    if rng.one_in(5) {
        add(&["REDIRECT", rng.pick(&["<id 3>", "<id 3>", "<id 4>", "99999999", "abc", "0"])]);
    }
    if runs_scripts || rng.one_in(3) {
        add(&["BCAST"]);
        (0..rng.below(3)).for_each(|_| add(&["PREFIX", rng.pick(&["k", "h", "l0", "z", "t", "n", ""])]));
    } else if rng.one_in(20) {
        add(&["PREFIX", "k"]);
    }
    for (option, times) in [("OPTIN", 6), ("OPTOUT", 6), ("NOLOOP", 4), ("junk", 40)] {
        if rng.one_in(times) && !(runs_scripts && option == "NOLOOP") {
            add(&[option]);
        }
    }
    words
}

fn spell(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Whether a frame is no reply: a message or an invalidation.
pub(crate) fn is_unasked(frame: &Reply) -> bool {
    match frame {
        Reply::List(b'>', _) => confirmed(frame).is_none(),
        Reply::List(b'*', _) => matches!(kind(frame), Some(b"message" | b"pmessage" | b"smessage")),
        _ => false,
    }
}

/// The subscription that a frame confirms or ends.
pub(crate) fn confirmed(frame: &Reply) -> Option<Confirmed<'_>> {
    let Reply::List(_, items) = frame else { return None };
    let (space, is_begun) = match kind(frame)? {
        b"subscribe" => (Space::Channels, true),
        b"unsubscribe" => (Space::Channels, false),
        b"psubscribe" => (Space::Patterns, true),
        b"punsubscribe" => (Space::Patterns, false),
        b"ssubscribe" => (Space::Shards, true),
        b"sunsubscribe" => (Space::Shards, false),
        _ => return None,
    };
    Some(Confirmed { space, is_begun, name: items.get(1)? })
}

fn kind(frame: &Reply) -> Option<&[u8]> {
    let Reply::List(_, items) = frame else { return None };
    match items.first() {
        Some(Reply::Bulk(kind)) => Some(kind),
        _ => None,
    }
}

/// A subscription that has begun or ended.
pub(crate) struct Confirmed<'r> {
    space: Space,
    is_begun: bool,
    name: &'r Reply,
}

/// The three kinds of subscriptions.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Space {
    Channels,
    Patterns,
    Shards,
}

/// The subscriptions of a client, by the replies it received.
#[derive(Default)]
pub(crate) struct Subscriptions(BTreeSet<(Space, String)>);

impl Subscriptions {
    /// How many frames confirm this request; `None` if it is not a subscription request.
    pub(crate) fn confirmations(&self, words: &Words) -> Option<usize> {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let space = match &*name {
            "SUBSCRIBE" | "UNSUBSCRIBE" => Space::Channels,
            "PSUBSCRIBE" | "PUNSUBSCRIBE" => Space::Patterns,
            "SSUBSCRIBE" | "SUNSUBSCRIBE" => Space::Shards,
            _ => return None,
        };
        let all = || self.0.iter().filter(|(of, _)| *of == space).count();
        Some(if words.len() > 1 { words.len() - 1 } else { all().max(1) })
    }

    /// Records the subscription that a reply, or a part of it, confirms.
    pub(crate) fn note(&mut self, reply: &Reply) {
        match (confirmed(reply), reply) {
            (Some(confirmed), _) => {
                let entry = (confirmed.space, confirmed.name.spell());
                if confirmed.is_begun {
                    self.0.insert(entry)
                } else {
                    self.0.remove(&entry)
                };
            }
            (None, Reply::List(_, parts)) => parts.iter().for_each(|part| self.note(part)),
            _ => {}
        }
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// The comparable form of messages: published messages in order, then each invalidated key once. The position of an
/// invalidation among the messages depends on the command in Redis, and for BCAST Redis gathers the keys of one
/// iteration of its event loop into one message.
pub(crate) fn in_kinds(frames: Vec<Reply>) -> Reply {
    let stale = |frame: &Reply| match frame {
        Reply::List(_, items) if kind(frame) == Some(b"invalidate") => items.get(1).cloned(),
        Reply::List(_, items) if items.get(1) == Some(&Reply::Bulk(INVALIDATE.into())) => {
            items.get(2).cloned().filter(|keys| !matches!(keys, Reply::Bulk(_)))
        }
        _ => None,
    };
    let mut keys: BTreeSet<String> = BTreeSet::new();
    let mut messages = Vec::new();
    for frame in frames {
        match stale(&frame) {
            Some(Reply::List(_, stale)) => keys.extend(stale.iter().map(Reply::spell)),
            Some(all) => _ = keys.insert(all.spell()),
            None => messages.push(frame),
        }
    }
    let keys = keys.into_iter().map(|key| Reply::Simple(key.into_bytes()));
    Reply::List(b'>', by_pattern(messages).into_iter().chain(keys).collect())
}

/// Whether both servers sent equal messages by [`in_kinds`]. redlatch may also invalidate all keys, as it does after
/// SWAPDB; Redis 7.0 does not.
pub(crate) fn same_unasked(ours: &Reply, theirs: &Reply) -> bool {
    let (Reply::List(_, told), Reply::List(_, expected)) = (ours, theirs) else { return false };
    let without = || told.iter().filter(|told| !matches!(told, Reply::Simple(all) if all == b"nil"));
    told == expected || without().eq(expected)
}

/// Sorts the patterns that match one message: Redis sends them in the order of a hash table.
fn by_pattern(mut frames: Vec<Reply>) -> Vec<Reply> {
    let message = |frame: &Reply| match frame {
        Reply::List(_, items) if kind(frame) == Some(b"pmessage") => items.get(2..).map(<[Reply]>::to_vec),
        _ => None,
    };
    let same = |one: &Reply, next: &Reply| message(one).is_some_and(|one| Some(one) == message(next));
    for run in frames.chunk_by_mut(same) {
        run.sort_by_key(Reply::spell);
    }
    frames
}

/// Sorts the confirmations of an UNSUBSCRIBE without names: Redis sends them in the order of a hash table.
pub(crate) fn in_order(frames: Vec<Reply>) -> Reply {
    let name = |frame: &Reply| match frame {
        Reply::List(_, items) => items.get(1).cloned(),
        _ => None,
    };
    let mut names: Vec<Option<Reply>> = frames.iter().map(name).collect();
    names.sort_by_key(|name| name.as_ref().map(Reply::spell));
    let renamed = frames.into_iter().zip(names).map(|(frame, name)| match (frame, name) {
        (Reply::List(kind, mut items), Some(name)) => {
            items[1] = name;
            Reply::List(kind, items)
        }
        (frame, _) => frame,
    });
    Reply::List(b'*', renamed.collect())
}

const INVALIDATE: &str = "__redis__:invalidate";

const CHANNELS: &[&str] =
    &["c0", "c1", "c2", "__keyspace@0__:k0", "__keyevent@0__:set", "__keyevent@0__:del", INVALIDATE, ""];

const PATTERNS: &[&str] =
    &["c*", "c[01]", "c?", "*", "__key*__:*", "__keyevent@*__:*", "__keyspace@0__:?0", "c0", "nobody*", ""];

const MESSAGES: &[&str] = &["hello", "", "two words", "\r\n", "3"];
