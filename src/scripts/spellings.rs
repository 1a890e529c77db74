//! The many ways to write the same few scripts: guards, actions and answers that documents and clients combine freely.
//!
//! Owns    the lists whose product is the larger part of the table.
//! Knows   programs as data; every text here is our own spelling, and the shape makes it stand for all others.

use super::native::{Arg, Do, Give, Role, Step, Test};

pub(super) const K1: Arg = Arg::Of(Role::Key(1));
pub(super) const A1: Arg = Arg::Of(Role::Argument(1));
pub(super) const A2: Arg = Arg::Of(Role::Argument(2));

/// A call by its place in the script, its command and its arguments.
pub(super) const fn call(place: u8, command: &'static str, args: &'static [Arg]) -> Do {
    Do { call: place, command, args }
}

/// A piece of Lua and the steps that it stands for.
pub(super) struct Piece {
    pub(super) text: &'static str,
    pub(super) steps: &'static [Step],
}

/// What a script does for whoever holds the lock, with every answer that is given after it.
pub(super) struct Action {
    pub(super) name: &'static str,
    pub(super) sent_by: &'static str,
    /// The command that it calls, in upper case.
    pub(super) command: &'static str,
    pub(super) endings: &'static [Piece],
}

macro_rules! endings {
    ($text:literal, $call:expr) => {
        &[
            Piece { text: concat!("return ", $text), steps: &[Step::Return(Give::Call($call))] },
            Piece {
                text: concat!("local r = ", $text, " return r"),
                steps: &[Step::Return(Give::Call($call))],
            },
            Piece {
                text: concat!($text, " return 1"),
                steps: &[Step::Call($call), Step::Return(Give::Integer(1))],
            },
            Piece {
                text: concat!($text, " return true"),
                steps: &[Step::Call($call), Step::Return(Give::Integer(1))],
            },
            Piece {
                text: concat!($text, " return 'OK'"),
                steps: &[Step::Call($call), Step::Return(Give::Bulk("OK"))],
            },
            Piece {
                text: concat!("if ", $text, " == 1 then return 1 else return 0 end"),
                steps: &[Step::If {
                    reply: $call,
                    is: Test::Equals(1),
                    then: &[Step::Return(Give::Integer(1))],
                    otherwise: &[Step::Return(Give::Integer(0))],
                }],
            },
        ]
    };
}

macro_rules! reading {
    ($text:literal, $call:expr) => {
        &[
            Piece { text: concat!("return ", $text), steps: &[Step::Return(Give::Call($call))] },
            Piece {
                text: concat!("local r = ", $text, " return r"),
                steps: &[Step::Return(Give::Call($call))],
            },
        ]
    };
}

/// Everything that is done behind a guard.
pub(super) const ACTIONS: &[Action] = &[
    Action {
        name: "compare-and-delete",
        sent_by: "nearly every client's release: delete the key if it still holds my token",
        command: "DEL",
        endings: endings!("redis.call('del', KEYS[1])", call(1, "DEL", &[K1])),
    },
    Action {
        name: "compare-and-unlink",
        sent_by: "releases of newer clients: as compare-and-delete",
        command: "UNLINK",
        endings: endings!("redis.call('unlink', KEYS[1])", call(1, "UNLINK", &[K1])),
    },
    Action {
        name: "compare-and-pexpire",
        sent_by: "nearly every client's extend: a new lease in milliseconds if the key still holds my token",
        command: "PEXPIRE",
        endings: endings!("redis.call('pexpire', KEYS[1], ARGV[2])", call(1, "PEXPIRE", &[K1, A2])),
    },
    Action {
        name: "compare-and-pexpire, a number",
        sent_by: "hand-written extends that convert first",
        command: "PEXPIRE",
        endings: endings!(
            "redis.call('pexpire', KEYS[1], tonumber(ARGV[2]))",
            call(1, "PEXPIRE", &[K1, Arg::Number(Role::Argument(2))])
        ),
    },
    Action {
        name: "compare-and-expire",
        sent_by: "extends in seconds",
        command: "EXPIRE",
        endings: endings!("redis.call('expire', KEYS[1], ARGV[2])", call(1, "EXPIRE", &[K1, A2])),
    },
    Action {
        name: "compare-and-expire, a number",
        sent_by: "hand-written extends in seconds that convert first",
        command: "EXPIRE",
        endings: endings!(
            "redis.call('expire', KEYS[1], tonumber(ARGV[2]))",
            call(1, "EXPIRE", &[K1, Arg::Number(Role::Argument(2))])
        ),
    },
    Action {
        name: "compare-and-pexpireat",
        sent_by: "extends until a time",
        command: "PEXPIREAT",
        endings: reading!("redis.call('pexpireat', KEYS[1], ARGV[2])", call(1, "PEXPIREAT", &[K1, A2])),
    },
    Action {
        name: "compare-and-expireat",
        sent_by: "extends until a time in seconds",
        command: "EXPIREAT",
        endings: reading!("redis.call('expireat', KEYS[1], ARGV[2])", call(1, "EXPIREAT", &[K1, A2])),
    },
    Action {
        name: "compare-and-persist",
        sent_by: "holders that give up their lease's end",
        command: "PERSIST",
        endings: reading!("redis.call('persist', KEYS[1])", call(1, "PERSIST", &[K1])),
    },
    Action {
        name: "compare-and-set, milliseconds",
        sent_by: "extends that write the token again",
        command: "SET",
        endings: reading!(
            "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])",
            call(1, "SET", &[K1, A1, Arg::Word("PX"), A2])
        ),
    },
    Action {
        name: "compare-and-set existing, milliseconds",
        sent_by: "node-redis-warlock: write the token again if the key is still there",
        command: "SET",
        endings: reading!(
            "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2], 'XX')",
            call(1, "SET", &[K1, A1, Arg::Word("PX"), A2, Arg::Word("XX")])
        ),
    },
    Action {
        name: "compare-and-set, seconds",
        sent_by: "extends in seconds that write the token again",
        command: "SET",
        endings: reading!(
            "redis.call('set', KEYS[1], ARGV[1], 'EX', ARGV[2])",
            call(1, "SET", &[K1, A1, Arg::Word("EX"), A2])
        ),
    },
    Action {
        name: "guarded pttl",
        sent_by: "clients that ask how long they still hold, in milliseconds",
        command: "PTTL",
        endings: reading!("redis.call('pttl', KEYS[1])", call(1, "PTTL", &[K1])),
    },
    Action {
        name: "guarded ttl",
        sent_by: "clients that ask how long they still hold, in seconds",
        command: "TTL",
        endings: reading!("redis.call('ttl', KEYS[1])", call(1, "TTL", &[K1])),
    },
];

/// What a script answers to whoever does not hold the lock.
pub(super) const REFUSALS: &[Piece] = &[
    Piece { text: "return 0", steps: &[Step::Return(Give::Integer(0))] },
    Piece { text: "return -1", steps: &[Step::Return(Give::Integer(-1))] },
    Piece { text: "return false", steps: &[Step::Return(Give::Nil)] },
    Piece { text: "return nil", steps: &[Step::Return(Give::Nil)] },
];

/// Guards that pass for the holder; `H` is the action and `M` the refusal.
pub(super) const GUARDS: &[&str] = &[
    "if redis.call('get', KEYS[1]) == ARGV[1] then H else M end",
    "if redis.call('get', KEYS[1]) == ARGV[1] then H end M",
    "if ARGV[1] == redis.call('get', KEYS[1]) then H else M end",
    "if ARGV[1] == redis.call('get', KEYS[1]) then H end M",
    "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then H else M end",
    "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then H end M",
    "local v = redis.call('get', KEYS[1]) if ARGV[1] == v then H else M end",
    "local v = redis.call('get', KEYS[1]) if ARGV[1] == v then H end M",
    "local v = redis.call('get', KEYS[1]) if v and v == ARGV[1] then H else M end",
    "local v = redis.call('get', KEYS[1]) if v and v == ARGV[1] then H end M",
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then M end H",
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then M else H end",
    "local v = redis.call('get', KEYS[1]) if v ~= ARGV[1] then M end H",
    "local v = redis.call('get', KEYS[1]) if v ~= ARGV[1] then M else H end",
    "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then M end H",
    "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then M else H end",
];

/// Guards of scripts that return nothing to whoever does not hold the lock.
pub(super) const SILENT_GUARDS: &[&str] = &[
    "if redis.call('get', KEYS[1]) == ARGV[1] then H end",
    "if ARGV[1] == redis.call('get', KEYS[1]) then H end",
    "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then H end",
    "local v = redis.call('get', KEYS[1]) if ARGV[1] == v then H end",
];

macro_rules! acquire {
    ($text:literal, $($word:expr),*) => {
        ($text, &[Step::Return(Give::Call(call(0, "SET", &[K1, A1, $($word),*])))], &[Step::If {
            reply: call(0, "SET", &[K1, A1, $($word),*]),
            is: Test::True,
            then: &[Step::Return(Give::Integer(1))],
            otherwise: &[Step::Return(Give::Integer(0))],
        }])
    };
}

const EX: Arg = Arg::Word("EX");
const NX: Arg = Arg::Word("NX");
const PX: Arg = Arg::Word("PX");

/// The options of a SET that takes a lock; the program that gives its reply, and the one that gives 1 or 0.
pub(super) const ACQUIRES: &[(&str, &[Step], &[Step])] = &[
    acquire!("'NX', 'PX', ARGV[2]", NX, PX, A2),
    acquire!("'PX', ARGV[2], 'NX'", PX, A2, NX),
    acquire!("'NX', 'EX', ARGV[2]", NX, EX, A2),
    acquire!("'EX', ARGV[2], 'NX'", EX, A2, NX),
    acquire!("'PX', ARGV[2]", PX, A2),
    acquire!("'EX', ARGV[2]", EX, A2),
    acquire!("'NX'", NX),
];
