//! The two sides of the table: kinds of locks, and ways in which a lock ends or changes.
//!
//! Rule    a kind and a way are lines that clients send, and what the model makes of them.
//! Lines   `h: DEL k` is a command of the holder; `+100` passes milliseconds; `close h` and `crash` end connections.
//! Source  the texts of Redisson's scripts are those of its Java package; their digests are in
//!         `crates/core/src/scripts/known.rs`.

use super::model::Role::{Holder, Other, Second};
use super::model::{Answer, Form, Hold, Model, Role, place};

/// A kind of lock, as it is taken 1,500 ms before a way begins.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) takes: &'static [&'static str],
    form: Form,
    kind: &'static str,
    limit: Option<u64>,
    /// Client, lease, permits, renewals of each holder. The owners are `a` and `b`.
    holds: &'static [(Role, Option<u64>, u32, u32)],
    delay: Option<u64>,
    /// Further keys of the same owner, with the same token.
    more: &'static [&'static str],
    is_native: bool,
    meta: Option<&'static str>,
}

/// A lock of a LOCK command with one holder.
const ONE: Kind = Kind {
    name: "exclusive",
    takes: &["h: LOCK.ACQUIRE k a LEASE 60000"],
    form: Form::String,
    kind: "exclusive",
    limit: None,
    holds: &[(Holder, Some(60_000), 1, 0)],
    delay: None,
    more: &[],
    is_native: true,
    meta: None,
};

pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "SET NX", takes: &["h: SET k a NX PX 60000"], is_native: false, ..ONE },
    Kind { name: "SETNX", takes: &["h: SETNX k a"], holds: &[(Holder, None, 1, 0)], is_native: false, ..ONE },
    ONE,
    Kind {
        name: "exclusive with meta",
        takes: &["h: LOCK.ACQUIRE k a LEASE 60000 META host web-1"],
        meta: Some("host web-1"),
        ..ONE
    },
    Kind { name: "several keys", takes: &["h: LOCK.MACQUIRE 2 k m a LEASE 60000"], more: &["m"], ..ONE },
    Kind { name: "any of several keys", takes: &["h: LOCK.MACQUIRE 3 k m n a ANY 1 LEASE 60000"], ..ONE },
    Kind {
        name: "several keys, shared",
        takes: &["h: LOCK.MACQUIRE 2 k m a MODE 2 SHARED MODE 1 SHARED LEASE 60000"],
        more: &["m"],
        form: Form::Value,
        kind: "shared",
        ..ONE
    },
    Kind {
        name: "any of several keys, permits",
        takes: &["h: LOCK.MACQUIRE 2 k m a ANY 1 MODE 1 PERMITS 2 OF 5 LEASE 60000"],
        form: Form::Value,
        kind: "permits",
        limit: Some(5),
        holds: &[(Holder, Some(60_000), 2, 0)],
        ..ONE
    },
    Kind {
        name: "session",
        takes: &["h: LOCK.ACQUIRE k a SESSION"],
        holds: &[(Holder, None, 1, 0)],
        delay: Some(0),
        ..ONE
    },
    Kind {
        name: "session with delay",
        takes: &["h: LOCK.ACQUIRE k a SESSION DELAY 5000"],
        holds: &[(Holder, None, 1, 0)],
        delay: Some(5_000),
        ..ONE
    },
    Kind {
        name: "shared",
        takes: &["h: LOCK.ACQUIRE k a LEASE 60000 SHARED"],
        form: Form::Value,
        kind: "shared",
        ..ONE
    },
    Kind {
        name: "shared by two",
        takes: &["h: LOCK.ACQUIRE k a LEASE 60000 SHARED", "g: LOCK.ACQUIRE k b LEASE 80000 SHARED"],
        form: Form::Value,
        kind: "shared",
        holds: &[(Holder, Some(60_000), 1, 0), (Second, Some(80_000), 1, 0)],
        ..ONE
    },
    Kind {
        name: "shared session",
        takes: &["h: LOCK.ACQUIRE k a SHARED SESSION"],
        form: Form::Value,
        kind: "shared",
        holds: &[(Holder, None, 1, 0)],
        delay: Some(0),
        ..ONE
    },
    Kind {
        name: "shared session with delay",
        takes: &["h: LOCK.ACQUIRE k a SHARED SESSION DELAY 5000"],
        form: Form::Value,
        kind: "shared",
        holds: &[(Holder, None, 1, 0)],
        delay: Some(5_000),
        ..ONE
    },
    Kind {
        name: "permits",
        takes: &["h: LOCK.ACQUIRE k a LEASE 60000 PERMITS 2 OF 5"],
        form: Form::Value,
        kind: "permits",
        limit: Some(5),
        holds: &[(Holder, Some(60_000), 2, 0)],
        ..ONE
    },
    Kind {
        name: "permits of two",
        takes: &[
            "h: LOCK.ACQUIRE k a LEASE 60000 PERMITS 2 OF 5",
            "g: LOCK.ACQUIRE k b LEASE 80000 PERMITS 1 OF 5",
        ],
        form: Form::Value,
        kind: "permits",
        limit: Some(5),
        holds: &[(Holder, Some(60_000), 2, 0), (Second, Some(80_000), 1, 0)],
        ..ONE
    },
    Kind {
        name: "reentrant",
        takes: &["h: LOCK.ACQUIRE k a LEASE 60000 REENTRANT"],
        form: Form::Value,
        kind: "reentrant",
        ..ONE
    },
    Kind {
        name: "reentrant twice",
        takes: &["h: LOCK.ACQUIRE k a LEASE 60000 REENTRANT", "h: LOCK.ACQUIRE k a LEASE 60000 REENTRANT"],
        form: Form::Value,
        kind: "reentrant",
        holds: &[(Holder, Some(60_000), 2, 1)],
        ..ONE
    },
    Kind {
        name: "Redisson",
        takes: &["h: $REDISSON-LOCK"],
        form: Form::Hash,
        kind: "reentrant",
        is_native: false,
        ..ONE
    },
];

impl Kind {
    /// The lock is held.
    pub(crate) fn take(&self, model: &mut Model) {
        for key in ["k"].iter().chain(self.more) {
            for (index, (by, lease, permits, renewals)) in self.holds.iter().enumerate() {
                let hold = Hold {
                    owner: ["a", "b"][index].to_owned(),
                    by: *by,
                    token: index as u64 + 1,
                    since: model.now,
                    lease: *lease,
                    until: lease.map(|lease| model.now + lease),
                    renewals: *renewals,
                    permits: *permits,
                    is_native: self.is_native,
                    delay: self.delay,
                    meta: self.meta,
                };
                let at = place(key);
                model.grant(&at, self.form, (self.kind, self.limit), hold);
                for _ in 0..*renewals {
                    model.events.push((at.clone(), format!("renewed {} {}", index + 1, ["a", "b"][index])));
                }
            }
        }
    }
}

/// A way in which a lock ends or changes.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) does: &'static [&'static str],
    pub(crate) law: fn(&mut Model),
}

const fn way(name: &'static str, does: &'static [&'static str], law: fn(&mut Model)) -> Way {
    Way { name, does, law }
}

pub(crate) const WAYS: &[Way] =
    &[
        way("nothing", &[], |_| {}),
        // Releases.
        way("LOCK.RELEASE", &["h: LOCK.RELEASE k a"], |model| {
            if model.form() != Form::Hash {
                model.release(Holder);
            }
        }),
        way("LOCK.RELEASE by another connection", &["o: LOCK.RELEASE k a"], |model| {
            if model.form() != Form::Hash {
                model.release(Other);
            }
        }),
        way("release script", &["h: $RELEASE"], |model| match model.form() {
            Form::Value => model.if_string(|_| {}),
            _ => model.release(Holder),
        }),
        way("DELIFEQ by another", &["o: DELIFEQ k a"], |model| model.if_string(|model| model.release(Other))),
        way("DELEX IFEQ by another", &["o: DELEX k IFEQ a"], |model| match model.form() {
            Form::String => model.release(Other),
            _ => model.answer = Answer::Refused(""),
        }),
        way("DELEX IFDEQ by another", &["o: DELEX k IFDEQ e6c632b61e964e1f"], |model| match model.form() {
            Form::String => model.release(Other),
            _ => model.answer = Answer::Refused(""),
        }),
        way("DELEX IFNE by another", &["o: DELEX k IFNE c"], |model| match model.form() {
            Form::String => model.delete(Other),
            _ => model.answer = Answer::Refused(""),
        }),
        way("LOCK.BREAK", &["o: LOCK.BREAK k TOKEN 1 REASON deploy-7"], |model| {
            model.break_lock(Other, "deploy-7");
        }),
        way("LOCK.BREAK by the holder", &["h: LOCK.BREAK k TOKEN 1 REASON deploy-7"], |model| {
            model.break_lock(Holder, "deploy-7");
        }),
        way("LOCK.TRANSFER", &["h: LOCK.TRANSFER k a TO c LEASE 60000"], |model| {
            model.transfer(Holder, "c", 60_000);
        }),
        way("LOCK.TRANSFER by another", &["o: LOCK.TRANSFER k a TO c TOKEN 1 LEASE 60000"], |model| {
            model.transfer(Other, "c", 60_000);
        }),
        way("LOCK.TRANSFER to the one that waits", &["h: LOCK.TRANSFER k a TO next LEASE 60000"], |model| {
            model.transfer(Holder, "next", 60_000);
        }),
        // The key is deleted.
        way("DEL by the holder", &["h: DEL k"], |model| model.delete(Holder)),
        way("DEL", &["o: DEL k"], |model| model.delete(Other)),
        way("UNLINK by the holder", &["h: UNLINK k"], |model| model.delete(Holder)),
        way("UNLINK", &["o: UNLINK k"], |model| model.delete(Other)),
        way("GETDEL by the holder", &["h: GETDEL k"], |model| model.if_string(|model| model.delete(Holder))),
        way("GETDEL", &["o: GETDEL k"], |model| model.if_string(|model| model.delete(Other))),
        way("DELEX by the holder", &["h: DELEX k"], |model| model.delete(Holder)),
        way("DELEX", &["o: DELEX k"], |model| model.delete(Other)),
        way("DEL in a script", &["o: EVAL return(redis.call('del',KEYS[1])) 1 k"], |model| {
            model.delete_nested(Other)
        }),
        way("DEL in EXEC", &["o: MULTI", "o: DEL k", "o: EXEC"], |model| model.delete_nested(Other)),
        way("Redisson's forceUnlock", &["o: $FORCE"], |model| model.force(Other)),
        way("HDEL by the holder", &["h: HDEL k a"], |model| match model.form() {
            Form::Hash => model.delete(Holder),
            _ => model.answer = Answer::Refused("WRONGTYPE"),
        }),
        way("HGETDEL by the holder", &["h: HGETDEL k FIELDS 1 a"], |model| match model.form() {
            Form::Hash => model.delete(Holder),
            _ => model.answer = Answer::Refused("WRONGTYPE"),
        }),
        way("HDEL", &["o: HDEL k a"], |model| match model.form() {
            Form::Hash => model.delete(Other),
            _ => model.answer = Answer::Refused("WRONGTYPE"),
        }),
        // The value is replaced.
        way("SET by the holder", &["h: SET k v"], |model| model.overwrite(Holder, Some("v"))),
        way("SET", &["o: SET k v"], |model| model.overwrite(Other, Some("v"))),
        way("SET of the same value", &["h: SET k a PX 30000"], set_same),
        way("SET IFEQ of the same value", &["h: SET k a IFEQ a PX 30000"], |model| model.if_string(set_same)),
        way("SET IFDEQ of the same value", &["h: SET k a PX 30000 IFDEQ e6c632b61e964e1f"], |model| {
            model.if_string(set_same);
        }),
        way("SET IFEQ of another value", &["o: SET k v IFEQ a"], |model| {
            model.if_string(|model| model.overwrite(Other, Some("v")));
        }),
        way("SET IFEQ that does not hold", &["o: SET k v IFEQ c"], |model| model.if_string(|_| {})),
        way("MSETEX of the same value", &["h: MSETEX 1 k a PX 30000"], set_same),
        way("MSETEX NX", &["o: MSETEX 1 k v NX PX 1000"], |_| {}),
        way("SET NX", &["o: SET k v NX PX 1000"], |_| {}),
        way("MSETEX", &["o: MSETEX 1 k v"], |model| model.overwrite(Other, Some("v"))),
        way("MSET", &["o: MSET k v"], |model| model.overwrite(Other, Some("v"))),
        way("GETSET by the holder", &["h: GETSET k v"], |model| {
            model.if_string(|model| model.overwrite(Holder, Some("v")));
        }),
        way("GETSET", &["o: GETSET k v"], |model| model.if_string(|model| model.overwrite(Other, Some("v")))),
        way("APPEND", &["o: APPEND k v"], |model| {
            model.if_string(|model| {
                let until = model.keys[&place("k")].until();
                model.overwrite(Other, Some("av"));
                model.put(&place("k"), Some("av"), until);
            });
        }),
        way("APPEND of nothing", &["o: APPEND k "], |model| model.if_string(|_| {})),
        way("RENAME over it by the holder", &["h: SET s v", "h: RENAME s k"], |model| {
            model.overwrite(Holder, Some("v"));
        }),
        way("RENAME over it", &["o: SET s v", "o: RENAME s k"], |model| model.overwrite(Other, Some("v"))),
        way("COPY over it by the holder", &["h: SET s v", "h: COPY s k REPLACE"], |model| {
            model.overwrite(Holder, Some("v"));
            model.put(&place("s"), Some("v"), None);
        }),
        way("COPY over it", &["o: SET s v", "o: COPY s k REPLACE"], |model| {
            model.overwrite(Other, Some("v"));
            model.put(&place("s"), Some("v"), None);
        }),
        way("ZINTERSTORE over it", &["o: ZADD z 1 m", "o: ZINTERSTORE k 1 z"], |model| {
            model.overwrite(Other, None);
            model.put(&place("z"), None, None);
        }),
        way("ZRANGESTORE over it", &["o: ZADD z 1 m", "o: ZRANGESTORE k z 0 -1"], |model| {
            model.overwrite(Other, None);
            model.put(&place("z"), None, None);
        }),
        // The key goes elsewhere.
        way("RENAME by the holder", &["h: RENAME k away"], |model| model.move_away(Holder, &place("away"))),
        way("RENAME", &["o: RENAME k away"], |model| model.move_away(Other, &place("away"))),
        way("MOVE by the holder", &["h: MOVE k 1"], |model| model.move_away(Holder, &(1, "k".to_owned()))),
        way("MOVE", &["o: MOVE k 1"], |model| model.move_away(Other, &(1, "k".to_owned()))),
        way("COPY", &["o: COPY k away"], |model| model.copy(&place("away"))),
        way("SWAPDB", &["o: SWAPDB 0 1"], Model::swap),
        way("SWAPDB twice", &["o: SWAPDB 0 1", "o: SWAPDB 1 0"], |model| {
            model.swap();
            model.swap();
        }),
        way("SWAPDB, then the connection ends", &["o: SWAPDB 0 1", "close h"], |model| {
            model.swap();
            model.close(Holder);
        }),
        way("FLUSHDB by the holder", &["h: FLUSHDB"], |model| model.flush(&[0], Holder)),
        way("FLUSHDB", &["o: FLUSHDB"], |model| model.flush(&[0], Other)),
        way("FLUSHALL by the holder", &["h: FLUSHALL"], |model| model.flush(&[0, 1, 2], Holder)),
        way("FLUSHALL", &["o: FLUSHALL"], |model| model.flush(&[0, 1, 2], Other)),
        way("SWAPDB, then FLUSHDB of the other database", &["o: SWAPDB 0 1", "o: FLUSHDB"], |model| {
            model.swap();
            model.flush(&[0], Other);
        }),
        way("SWAPDB, then FLUSHALL", &["o: SWAPDB 0 1", "o: FLUSHALL"], |model| {
            model.swap();
            model.flush(&[0, 1, 2], Other);
        }),
        // The lease.
        way("LOCK.EXTEND", &["h: LOCK.EXTEND k a LEASE 90000"], |model| {
            if model.form() != Form::Hash && !model.is_of_session() {
                model.renew(&place("k"), "a", Some(90_000));
            }
        }),
        way("LOCK.EXTEND by another connection", &["o: LOCK.EXTEND k a LEASE 90000"], |model| {
            if model.form() != Form::Hash && !model.is_of_session() {
                model.renew(&place("k"), "a", Some(90_000));
            }
        }),
        way("extend script", &["h: $EXTEND"], |model| model.if_string(|model| model.set_lease(Some(30_000)))),
        way("taken again by its owner", &["h: $TAKE"], |model| model.take_again(Holder, 60_000)),
        way("taken again on another connection", &["o: $TAKE"], |model| model.take_again(Other, 60_000)),
        way("taken again on another connection, the first ends", &["o: $TAKE", "close h"], |model| {
            model.take_again(Other, 60_000);
            model.close(Holder);
        }),
        way("taken again on another connection, DEL by the first", &["o: $TAKE", "h: DEL k"], |model| {
            model.take_again(Other, 60_000);
            model.delete(Holder);
        }),
        way("LOCK.MACQUIRE of it and another key", &["h: LOCK.MACQUIRE 2 k x a LEASE 60000"], |model| {
            match model.form() {
                Form::String => model.take_with(Holder, "x", 60_000),
                Form::Hash => {}
                Form::Value => model.answer = Answer::Refused("another way"),
            }
        }),
        way("LOCK.RELEASE with another token", &["h: LOCK.RELEASE k a TOKEN 77"], |_| {}),
        way("LOCK.TRANSFER with a token", &["h: LOCK.TRANSFER k a TO c TOKEN 77 LEASE 60000"], |model| {
            model.answer = Answer::Refused("NOTHELD");
        }),
        way("LOCK.TRANSFER to oneself", &["h: LOCK.TRANSFER k a TO a LEASE 60000"], |model| {
            model.answer = Answer::Refused("its own owner");
        }),
        way("LOCK.TRANSFER without a lease", &["h: LOCK.TRANSFER k a TO c"], |model| {
            model.answer = Answer::Refused(if model.form() == Form::Hash { "NOTHELD" } else { "NOLEASE" });
        }),
        way("LOCK.BREAK with another token", &["o: LOCK.BREAK k TOKEN 77"], |_| {}),
        way("LOCK.EXTEND by another owner", &["o: LOCK.EXTEND k c LEASE 90000"], |_| {}),
        way("PEXPIRE to the past by the holder", &["h: PEXPIRE k -1"], |model| model.end_lease(Holder)),
        way("PEXPIRE to the past", &["o: PEXPIRE k -1"], |model| model.end_lease(Other)),
        way("EXPIRE 0", &["o: EXPIRE k 0"], |model| model.end_lease(Other)),
        way("EXPIREAT to the past", &["o: EXPIREAT k 1"], |model| model.end_lease(Other)),
        way("GETEX to the past", &["o: GETEX k PXAT 1"], |model| {
            model.if_string(|model| model.end_lease(Other));
        }),
        way("PEXPIRE shorter by the holder", &["h: PEXPIRE k 20000"], |model| model.set_lease(Some(20_000))),
        way("PEXPIRE shorter", &["o: PEXPIRE k 20000"], |model| model.set_lease(Some(20_000))),
        way("PEXPIRE longer", &["o: PEXPIRE k 120000"], |model| model.set_lease(Some(120_000))),
        way("EXPIRE longer", &["h: EXPIRE k 120"], |model| model.set_lease(Some(120_000))),
        way("EXPIREAT longer", &["o: EXPIREAT k $SECONDS"], |model| {
            let at = super::SECONDS * 1_000 - super::START_UNIX_MS;
            model.set_lease(Some(at - model.now));
        }),
        way("PEXPIREAT longer", &["o: PEXPIREAT k $MILLIS"], |model| {
            let at = super::SECONDS * 1_000 - super::START_UNIX_MS;
            model.set_lease(Some(at - model.now));
        }),
        way("PERSIST by the holder", &["h: PERSIST k"], |model| model.set_lease(None)),
        way("PERSIST", &["o: PERSIST k"], |model| model.set_lease(None)),
        way("PERSIST, then PEXPIRE", &["o: PERSIST k", "o: PEXPIRE k 20000"], |model| {
            model.set_lease(None);
            model.set_lease(Some(20_000));
        }),
        way("GETEX", &["o: GETEX k"], |model| model.if_string(|_| {})),
        way("GETEX PX", &["o: GETEX k PX 20000"], |model| {
            model.if_string(|model| model.set_lease(Some(20_000)));
        }),
        way("GETEX PERSIST", &["o: GETEX k PERSIST"], |model| model.if_string(|model| model.set_lease(None))),
        way("lease end", &["+60001"], |model| model.pass(60_001)),
        way("the last millisecond", &["+58500"], |model| model.pass(58_500)),
        way("PEXPIRE GT with a shorter one", &["o: PEXPIRE k 20000 GT"], |_| {}),
        way(
            "polled by SET NX",
            &["o: SET k p NX PX 1000", "+50", "o: SET k p NX PX 1000", "+50", "o: SET k p NX PX 1000"],
            |model| {
                model.poll(50, 3);
            },
        ),
        way(
            "polled by LOCK.ACQUIRE",
            &["o: LOCK.ACQUIRE k p", "+50", "o: LOCK.ACQUIRE k p", "+50", "o: LOCK.ACQUIRE k p"],
            |model| {
                model.poll(50, 3);
            },
        ),
        // Connections and processes.
        way("the connection ends", &["close h"], |model| model.close(Holder)),
        way("the connection is killed", &["$KILL"], |model| model.close(Holder)),
        way("RESET by the holder", &["h: RESET", "h: HELLO 3"], |_| {}),
        way("the session is attached", &["$ATTACH"], |model| {
            model.close(Holder);
            model.attach(Other);
        }),
        way("crash", &["crash"], Model::crash),
        way("DEL after the connection has ended", &["close h", "o: DEL k"], |model| {
            model.close(Holder);
            if model.keys.contains_key(&place("k")) {
                model.delete(Other);
            }
        }),
    ];

/// A string of the same value, with a lease: renews the lock, unless it has a lease of its own or is no string.
fn set_same(model: &mut Model) {
    match model.form() {
        Form::String if !model.is_of_session() => model.set_lease(Some(30_000)),
        _ => {
            model.overwrite(Holder, Some("a"));
            model.put(&place("k"), Some("a"), Some(model.now + 30_000));
        }
    }
}

/// Redisson: Lock forceUnlock.
pub(crate) const REDISSON_FORCE: &str = "if (redis.call('del', KEYS[1]) == 1) then redis.call(ARGV[2], KEYS[2], \
     ARGV[1]); return 1 else return 0 end";

/// Redisson: Lock tryLock.
pub(crate) const REDISSON_LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', \
     KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], \
     ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";

/// Redisson: Lock unlock.
pub(crate) const REDISSON_UNLOCK: &str = "local val = redis.call('get', KEYS[3]); if val ~= false then return \
     tonumber(val);end; if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; local counter = \
     redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); \
     redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; else redis.call('del', KEYS[1]); redis.call(ARGV[4], \
     KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; ";
