//! The rows that are written out: scripts of one client each, or of a form that the spellings do not combine.
//!
//! Owns    nothing but the list. Each text is our own spelling of what that client sends.

use super::native::{Arg, Do, Give, Role, Step, Test};
use super::spellings::{A1, A2, K1, call};
use super::table::Row;

const K2: Arg = Arg::Of(Role::Key(2));
const A3: Arg = Arg::Of(Role::Argument(3));
const EACH: Arg = Arg::Of(Role::Each);
const ONE: Arg = Arg::Of(Role::Literal("1"));
const TOKEN: Role = Role::Argument(1);
const PX: Arg = Arg::Word("PX");
const PXAT: Arg = Arg::Word("PXAT");

const fn get(place: u8) -> Do {
    call(place, "GET", &[K1])
}

const fn integer(number: i64) -> Step {
    Step::Return(Give::Integer(number))
}

/// A lock that is not the caller's, missing or not, is answered by `refusal`.
const fn holder(held: &'static [Step], refusal: &'static [Step]) -> Step {
    Step::Holder { get: get(0), token: TOKEN, held, missing: refusal, other: refusal }
}

const ZERO: &[Step] = &[integer(0)];
const FALSE: &[Step] = &[Step::Return(Give::Nil)];
const REFUSED: &[Step] = &[Step::Return(Give::Error("ERR ERROR"))];

/// The rows, by what they do.
pub(super) const ROWS: &[Row] = &[
    // Releases.
    Row {
        name: "compare-and-delete, -1 where missing",
        sent_by: "redsync from 4.12 on",
        text: "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('del', KEYS[1]) \
               elseif v == false then return -1 else return 0 end",
        steps: &[Step::Holder {
            get: get(0),
            token: TOKEN,
            held: &[Step::Return(Give::Call(call(1, "DEL", &[K1])))],
            missing: &[integer(-1)],
            other: ZERO,
        }],
    },
    Row {
        name: "compare-and-delete, told in three ways",
        sent_by: "aioredlock",
        text: "local v = redis.call('get', KEYS[1]) if not v then return redis.status_reply('OK') elseif v == ARGV[1] \
               then return redis.call('del', KEYS[1]) else return redis.error_reply('ERROR') end",
        steps: &[Step::Holder {
            get: get(0),
            token: TOKEN,
            held: &[Step::Return(Give::Call(call(1, "DEL", &[K1])))],
            missing: &[Step::Return(Give::Status("OK"))],
            other: REFUSED,
        }],
    },
    Row {
        name: "compare-and-delete by a result",
        sent_by: "sherlock",
        text: "local r = 0 if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) r = 1 end return r",
        steps: &[holder(&[Step::Call(call(1, "DEL", &[K1])), integer(1)], ZERO)],
    },
    Row {
        name: "compare-and-delete, then a message",
        sent_by: "redis-lock-py",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) \
               redis.call('publish', KEYS[2], ARGV[2]) return 1",
        steps: &[holder(
            &[Step::Call(call(1, "DEL", &[K1])), Step::Call(call(2, "PUBLISH", &[K2, A2])), integer(1)],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-unlink, then a message",
        sent_by: "Spring Integration's registry, with publish and subscribe",
        text: "local v = redis.call('get', KEYS[1]) if (v == ARGV[1] and redis.call('unlink', KEYS[1]) == 1) then \
               redis.call('publish', ARGV[2], KEYS[1]) return true end return false",
        steps: &[holder(
            &[Step::If {
                reply: call(1, "UNLINK", &[K1]),
                is: Test::Equals(1),
                then: &[Step::Call(call(2, "PUBLISH", &[A2, K1])), integer(1)],
                otherwise: FALSE,
            }],
            FALSE,
        )],
    },
    Row {
        name: "compare-and-delete, then a signal in a list",
        sent_by: "python-redis-lock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 else redis.call('del', KEYS[2]) \
               redis.call('lpush', KEYS[2], 1) redis.call('pexpire', KEYS[2], ARGV[2]) redis.call('del', KEYS[1]) \
               return 0 end",
        steps: &[holder(
            &[
                Step::Call(call(1, "DEL", &[K2])),
                Step::Call(call(2, "LPUSH", &[K2, ONE])),
                Step::Call(call(3, "PEXPIRE", &[K2, A2])),
                Step::Call(call(4, "DEL", &[K1])),
                integer(0),
            ],
            &[integer(1)],
        )],
    },
    Row {
        name: "reset, with a signal in a list",
        sent_by: "python-redis-lock",
        text: "redis.call('del', KEYS[2]) redis.call('lpush', KEYS[2], 1) redis.call('pexpire', KEYS[2], ARGV[2]) \
               return redis.call('del', KEYS[1])",
        steps: &[
            Step::Call(call(0, "DEL", &[K2])),
            Step::Call(call(1, "LPUSH", &[K2, ONE])),
            Step::Call(call(2, "PEXPIRE", &[K2, A2])),
            Step::Return(Give::Call(call(3, "DEL", &[K1]))),
        ],
    },
    Row {
        name: "compare-and-delete, with a trimmed list",
        sent_by: "walrus",
        text: "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('lpush', KEYS[2], 1) \
               redis.call('ltrim', KEYS[2], 0, 0) return redis.call('del', KEYS[1]) else return 0 end",
        steps: &[holder(
            &[
                Step::Call(call(1, "LPUSH", &[K2, ONE])),
                Step::Call(call(2, "LTRIM", &[K2, Arg::Word("0"), Arg::Word("0")])),
                Step::Return(Give::Call(call(3, "DEL", &[K1]))),
            ],
            ZERO,
        )],
    },
    Row {
        name: "forced delete",
        sent_by: "Redisson's spin lock",
        text: "if (redis.call('del', KEYS[1]) == 1) then return 1 else return 0 end",
        steps: &[Step::If {
            reply: call(0, "DEL", &[K1]),
            is: Test::Equals(1),
            then: &[integer(1)],
            otherwise: ZERO,
        }],
    },
    Row {
        name: "forced delete, told",
        sent_by: "hand-written releases that ask nobody",
        text: "return redis.call('del', KEYS[1])",
        steps: &[Step::Return(Give::Call(call(0, "DEL", &[K1])))],
    },
    // Extends.
    Row {
        name: "compare-and-add to the lease, or replace it",
        sent_by: "redis-py and valkey-py from 3.5 on",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               local n = ARGV[2] if ARGV[3] == '0' then n = ARGV[2] + t end redis.call('pexpire', KEYS[1], n) return 1",
        steps: &[holder(
            &[
                Step::Keep(call(1, "PTTL", &[K1])),
                Step::IfKept { is: Test::Below(0), then: ZERO },
                Step::IfSame {
                    left: Role::Argument(3),
                    right: Role::Literal("0"),
                    then: &[Step::Call(call(2, "PEXPIRE", &[K1, Arg::KeptPlus(Role::Argument(2))]))],
                    otherwise: &[Step::Call(call(2, "PEXPIRE", &[K1, A2]))],
                },
                integer(1),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-add to the lease",
        sent_by: "coredis; redis-py before 3.5 is alike",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               redis.call('pexpire', KEYS[1], t + ARGV[2]) return 1",
        steps: ADD_MILLIS,
    },
    Row {
        name: "compare-and-add to the lease",
        sent_by: "redis-py before 3.5",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               redis.call('pexpire', KEYS[1], ARGV[2] + t) return 1",
        steps: ADD_MILLIS,
    },
    Row {
        name: "compare-and-pexpire a key that has a lease",
        sent_by: "celery-redbeat",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
        steps: &[holder(
            &[
                Step::Keep(call(1, "PTTL", &[K1])),
                Step::IfKept { is: Test::Below(0), then: ZERO },
                Step::Call(call(2, "PEXPIRE", &[K1, A2])),
                integer(1),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-add to the lease, seconds",
        sent_by: "redis-lock-py",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end local t = redis.call('ttl', KEYS[1]) \
               if t < 0 then return 0 end redis.call('expire', KEYS[1], t + ARGV[2]) return 1",
        steps: &[holder(
            &[
                Step::Keep(call(1, "TTL", &[K1])),
                Step::IfKept { is: Test::Below(0), then: ZERO },
                Step::Call(call(2, "EXPIRE", &[K1, Arg::KeptPlus(Role::Argument(2))])),
                integer(1),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-add to a positive lease, seconds",
        sent_by: "@upstash/lock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end local t = redis.call('ttl', KEYS[1]) \
               if t > 0 then return redis.call('expire', KEYS[1], t + ARGV[2]) else return 0 end",
        steps: &[holder(
            &[
                Step::Keep(call(1, "TTL", &[K1])),
                Step::IfKept {
                    is: Test::Above(0),
                    then: &[Step::Return(Give::Call(call(
                        2,
                        "EXPIRE",
                        &[K1, Arg::KeptPlus(Role::Argument(2))],
                    )))],
                },
                integer(0),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-expire a key that has a lease, told in three ways",
        sent_by: "python-redis-lock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 elseif redis.call('ttl', KEYS[1]) < 0 then \
               return 2 else redis.call('expire', KEYS[1], ARGV[2]) return 0 end",
        steps: &[holder(
            &[Step::If {
                reply: call(1, "TTL", &[K1]),
                is: Test::Below(0),
                then: &[integer(2)],
                otherwise: &[Step::Call(call(2, "EXPIRE", &[K1, A2])), integer(0)],
            }],
            &[integer(1)],
        )],
    },
    Row {
        // A string never equals a number, so the lease is always set, even to -1, which deletes the key.
        name: "compare-and-expire by a result",
        sent_by: "sherlock",
        text: "local r = 0 if redis.call('get', KEYS[1]) == ARGV[1] then if ARGV[2] ~= -1 then \
               redis.call('expire', KEYS[1], ARGV[2]) else redis.call('persist', KEYS[1]) end r = 1 end return r",
        steps: &[holder(&[Step::Call(call(1, "EXPIRE", &[K1, A2])), integer(1)], ZERO)],
    },
    Row {
        // The reply of SET is never nil, so it is 1 for every holder.
        name: "compare-and-set, then 1",
        sent_by: "rslock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 else \
               if redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) ~= nil then return 1 else return 0 end end",
        steps: &[holder(&[Step::Call(call(1, "SET", &[K1, A1, PX, A2])), integer(1)], ZERO)],
    },
    Row {
        name: "compare-and-pexpire with a least remaining lease",
        sent_by: "redlock-universal",
        text: "local t = redis.call('pttl', KEYS[1]) local least = tonumber(ARGV[2]) local n = tonumber(ARGV[3]) \
               if t == -2 then return {-1, -2} end if t < least then return {0, t} end \
               local v = redis.call('get', KEYS[1]) if v == ARGV[1] then redis.call('pexpire', KEYS[1], n) \
               return {1, t} else return {-1, t} end",
        steps: &[
            Step::Keep(call(0, "PTTL", &[K1])),
            Step::IfKept { is: Test::Equals(-2), then: &[Step::Return(Give::Pair(-1, -2))] },
            Step::IfKept {
                is: Test::BelowOperand(Role::Argument(2)),
                then: &[Step::Return(Give::PairKept(0))],
            },
            Step::Holder {
                get: get(1),
                token: TOKEN,
                held: &[
                    Step::Call(call(2, "PEXPIRE", &[K1, Arg::Number(Role::Argument(3))])),
                    Step::Return(Give::PairKept(1)),
                ],
                missing: &[Step::Return(Give::PairKept(-1))],
                other: &[Step::Return(Give::PairKept(-1))],
            },
        ],
    },
    // Acquires.
    Row {
        name: "acquire or refresh, with an error",
        sent_by: "aioredlock",
        text: "local v = redis.call('get', KEYS[1]) if not v or v == ARGV[1] then \
               return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) else return redis.error_reply('ERROR') end",
        steps: &[Step::Holder { get: get(0), token: TOKEN, held: SET_PX, missing: SET_PX, other: REFUSED }],
    },
    Row {
        name: "acquire or refresh, seconds",
        sent_by: "rq",
        text: "local v = redis.call('get', KEYS[1]) if not v then redis.call('set', KEYS[1], ARGV[1], 'EX', ARGV[2]) \
               return 1 elseif v == ARGV[1] then redis.call('expire', KEYS[1], ARGV[2]) return 2 end return 0",
        steps: &[Step::Holder {
            get: get(0),
            token: TOKEN,
            held: &[Step::Call(call(2, "EXPIRE", &[K1, A2])), integer(2)],
            missing: &[Step::Call(call(1, "SET", &[K1, A1, Arg::Word("EX"), A2])), integer(1)],
            other: ZERO,
        }],
    },
    Row {
        name: "acquire or refresh, told by a boolean",
        sent_by: "Spring Integration's registry",
        text: "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) \
               return true elseif not v then redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end \
               return false",
        steps: &[Step::Holder {
            get: get(0),
            token: TOKEN,
            held: &[Step::Call(call(1, "PEXPIRE", &[K1, A2])), integer(1)],
            missing: &[Step::Call(call(2, "SET", &[K1, A1, PX, A2])), integer(1)],
            other: FALSE,
        }],
    },
    Row {
        name: "refresh or acquire",
        sent_by: "redsync's touch with SET NX",
        text: "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) \
               elseif redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 else return 0 end",
        steps: &[holder(
            &[Step::Return(Give::Call(call(1, "PEXPIRE", &[K1, A2])))],
            &[Step::If {
                reply: call(2, "SET", &[K1, A1, PX, A2, Arg::Word("NX")]),
                is: Test::True,
                then: &[integer(1)],
                otherwise: ZERO,
            }],
        )],
    },
    Row {
        // A string never equals a number: -1 deletes the key at once.
        name: "setnx, then expire",
        sent_by: "sherlock",
        text: "local r = redis.call('setnx', KEYS[1], ARGV[1]) if r == 1 and ARGV[2] ~= -1 then \
               redis.call('expire', KEYS[1], ARGV[2]) end return r",
        steps: &[Step::If {
            reply: SETNX,
            is: Test::Equals(1),
            then: &[Step::Call(call(1, "EXPIRE", &[K1, A2])), integer(1)],
            otherwise: ZERO,
        }],
    },
    Row {
        name: "setnx, then a positive pexpire",
        sent_by: "walrus",
        text: "local t = tonumber(ARGV[2]) local r = redis.call('setnx', KEYS[1], ARGV[1]) \
               if r == 1 and t > 0 then redis.call('pexpire', KEYS[1], t) end return r",
        steps: &[Step::If {
            reply: SETNX,
            is: Test::Equals(1),
            then: &[
                Step::IfOperand {
                    operand: Role::Argument(2),
                    is: Test::Above(0),
                    then: &[Step::Call(call(1, "PEXPIRE", &[K1, Arg::Number(Role::Argument(2))]))],
                },
                integer(1),
            ],
            otherwise: ZERO,
        }],
    },
    Row {
        name: "setnx, then expire",
        sent_by: "hand-written acquires in seconds",
        text: "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('expire', KEYS[1], ARGV[2]) return 1 \
               else return 0 end",
        steps: SETNX_EXPIRE,
    },
    Row {
        name: "setnx, then expire",
        sent_by: "hand-written acquires in seconds",
        text: "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('expire', KEYS[1], ARGV[2]) return 1 \
               end return 0",
        steps: SETNX_EXPIRE,
    },
    Row {
        name: "setnx, then pexpire",
        sent_by: "hand-written acquires",
        text: "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 \
               else return 0 end",
        steps: SETNX_PEXPIRE,
    },
    Row {
        name: "setnx, then pexpire",
        sent_by: "hand-written acquires",
        text: "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 \
               end return 0",
        steps: SETNX_PEXPIRE,
    },
    Row {
        name: "acquire or refresh, told in three ways",
        sent_by: "RedLock.net",
        text: "local v = redis.call('get', KEYS[1]) if v == false then return redis.call('set', KEYS[1], ARGV[1], 'PX', \
               ARGV[2]) and 1 or 0 elseif v == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else \
               return -1 end",
        steps: &[Step::Holder {
            get: get(0),
            token: TOKEN,
            held: &[Step::Return(Give::Call(call(2, "PEXPIRE", &[K1, A2])))],
            missing: &[Step::Call(call(1, "SET", &[K1, A1, PX, A2])), integer(1)],
            other: &[integer(-1)],
        }],
    },
    Row {
        name: "acquire or refresh, null where taken",
        sent_by: "redlock-rb",
        text: "if redis.call('exists', KEYS[1]) == 0 or redis.call('get', KEYS[1]) == ARGV[1] then \
               return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
        steps: &[Step::If {
            reply: call(0, "EXISTS", &[K1]),
            is: Test::Equals(0),
            then: SET_PX_THIRD,
            otherwise: &[Step::Holder {
                get: get(1),
                token: TOKEN,
                held: SET_PX_THIRD,
                missing: FALSE,
                other: FALSE,
            }],
        }],
    },
    Row {
        name: "add with a lease",
        sent_by: "laravel's cache",
        text: "return redis.call('exists', KEYS[1]) < 1 and redis.call('setex', KEYS[1], ARGV[2], ARGV[1])",
        steps: &[Step::If {
            reply: call(0, "EXISTS", &[K1]),
            is: Test::Below(1),
            then: &[Step::Return(Give::Call(call(1, "SETEX", &[K1, A2, A1])))],
            otherwise: FALSE,
        }],
    },
    Row {
        // The read makes the client's cache follow the key.
        name: "acquire and read, milliseconds",
        sent_by: "rueidislock",
        text: "local r = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) redis.call('get', KEYS[1]) return r",
        steps: &[Step::If {
            reply: call(0, "SET", &[K1, A1, Arg::Word("NX"), PX, A2]),
            is: Test::True,
            then: READ_AND_OK,
            otherwise: READ_AND_NIL,
        }],
    },
    Row {
        name: "acquire and read, until a time",
        sent_by: "rueidislock",
        text: "local r = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PXAT', ARGV[2]) redis.call('get', KEYS[1]) return r",
        steps: &[Step::If {
            reply: call(0, "SET", &[K1, A1, Arg::Word("NX"), PXAT, A2]),
            is: Test::True,
            then: READ_AND_OK,
            otherwise: READ_AND_NIL,
        }],
    },
    Row {
        name: "forced set and read, milliseconds",
        sent_by: "rueidislock",
        text: "local r = redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) redis.call('get', KEYS[1]) return r",
        steps: &[
            Step::Call(call(0, "SET", &[K1, A1, PX, A2])),
            Step::Call(get(1)),
            Step::Return(Give::Status("OK")),
        ],
    },
    Row {
        name: "forced set and read, until a time",
        sent_by: "rueidislock",
        text: "local r = redis.call('set', KEYS[1], ARGV[1], 'PXAT', ARGV[2]) redis.call('get', KEYS[1]) return r",
        steps: &[
            Step::Call(call(0, "SET", &[K1, A1, PXAT, A2])),
            Step::Call(get(1)),
            Step::Return(Give::Status("OK")),
        ],
    },
    // Reads.
    Row {
        name: "guarded pttl, never negative",
        sent_by: "pottery",
        text: "if redis.call('get', KEYS[1]) == ARGV[1] then local t = redis.call('pttl', KEYS[1]) \
               return (t > 0) and t or 0 else return 0 end",
        steps: &[holder(
            &[
                Step::Keep(call(1, "PTTL", &[K1])),
                Step::IfKept { is: Test::Above(0), then: &[Step::Return(Give::Kept)] },
                integer(0),
            ],
            ZERO,
        )],
    },
    Row {
        name: "guarded ttl, with an error",
        sent_by: "aioredlock",
        text: "local v = redis.call('get', KEYS[1]) if not v then return redis.error_reply('ERROR') elseif \
               v == ARGV[1] then return redis.call('ttl', KEYS[1]) else return redis.error_reply('ERROR') end",
        steps: &[holder(&[Step::Return(Give::Call(call(1, "TTL", &[K1])))], REFUSED)],
    },
    Row {
        name: "value and lease",
        sent_by: "redlock-universal",
        text: "local v = redis.call('get', KEYS[1]) if not v then return nil end \
               local t = redis.call('pttl', KEYS[1]) return {v, t}",
        steps: &[Step::Return(Give::TextAndNumber {
            text: get(0),
            number: call(1, "PTTL", &[K1]),
            or_nil: true,
        })],
    },
    Row {
        name: "value and lease, null where missing",
        sent_by: "redlock-rb",
        text: "return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1])}",
        steps: &[Step::Return(Give::TextAndNumber {
            text: get(0),
            number: call(1, "PTTL", &[K1]),
            or_nil: false,
        })],
    },
    Row {
        name: "a read",
        sent_by: "probes and hand-written scripts",
        text: "return redis.call('get', KEYS[1])",
        steps: &[Step::Return(Give::Call(get(0)))],
    },
    Row {
        name: "two reads",
        sent_by: "Redisson, to learn whether it talks to a cluster",
        text: "redis.call('get', KEYS[1]) redis.call('get', KEYS[2])",
        steps: &[Step::Call(get(0)), Step::Call(call(1, "GET", &[K2]))],
    },
    // Locks over several keys.
    Row {
        name: "acquire all",
        sent_by: "redlock 4 and 5 (Node)",
        text: "for i, k in ipairs(KEYS) do if redis.call('exists', k) == 1 then return 0 end end \
               for i, k in ipairs(KEYS) do redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
        steps: &[
            Step::EachKey(&[Step::If {
                reply: call(0, "EXISTS", &[EACH]),
                is: Test::Equals(1),
                then: ZERO,
                otherwise: &[],
            }]),
            SET_EACH,
            Step::Return(Give::KeyCount),
        ],
    },
    Row {
        name: "extend all",
        sent_by: "redlock 4 and 5 (Node)",
        text: "for i, k in ipairs(KEYS) do if redis.call('get', k) ~= ARGV[1] then return 0 end end \
               for i, k in ipairs(KEYS) do redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
        steps: &[
            Step::EachKey(&[Step::Holder {
                get: GET_EACH,
                token: TOKEN,
                held: &[],
                missing: ZERO,
                other: ZERO,
            }]),
            SET_EACH,
            Step::Return(Give::KeyCount),
        ],
    },
    Row {
        name: "release all",
        sent_by: "redlock 4 and 5 (Node)",
        text: "local n = 0 for i, k in ipairs(KEYS) do if redis.call('get', k) == ARGV[1] then \
               redis.pcall('del', k) n = n + 1 end end return n",
        steps: &[
            Step::EachKey(&[Step::Holder {
                get: GET_EACH,
                token: TOKEN,
                held: &[Step::Try(call(1, "DEL", &[EACH])), Step::Count],
                missing: &[],
                other: &[],
            }]),
            Step::Return(Give::Counted),
        ],
    },
    Row {
        name: "acquire all, in a database",
        sent_by: "@sesamecare-oss/redlock",
        text: "redis.pcall('select', tonumber(ARGV[1])) for i, k in ipairs(KEYS) do if redis.call('exists', k) == 1 then \
               return 0 end end for i, k in ipairs(KEYS) do redis.call('set', k, ARGV[2], 'PX', ARGV[3]) end return #KEYS",
        steps: &[
            SELECT,
            Step::EachKey(&[Step::If {
                reply: call(1, "EXISTS", &[EACH]),
                is: Test::Equals(1),
                then: ZERO,
                otherwise: &[],
            }]),
            Step::EachKey(&[Step::Call(call(2, "SET", &[EACH, A2, PX, A3]))]),
            Step::Return(Give::KeyCount),
        ],
    },
    Row {
        name: "extend all, in a database",
        sent_by: "@sesamecare-oss/redlock",
        text: "redis.pcall('select', tonumber(ARGV[1])) for i, k in ipairs(KEYS) do if redis.call('get', k) ~= ARGV[2] \
               then return 0 end end for i, k in ipairs(KEYS) do redis.call('set', k, ARGV[2], 'PX', ARGV[3]) end \
               return #KEYS",
        steps: &[
            SELECT,
            Step::EachKey(&[Step::Holder {
                get: call(1, "GET", &[EACH]),
                token: Role::Argument(2),
                held: &[],
                missing: ZERO,
                other: ZERO,
            }]),
            Step::EachKey(&[Step::Call(call(2, "SET", &[EACH, A2, PX, A3]))]),
            Step::Return(Give::KeyCount),
        ],
    },
    Row {
        name: "release all, in a database",
        sent_by: "@sesamecare-oss/redlock",
        text: "redis.pcall('select', tonumber(ARGV[1])) local n = 0 for i, k in ipairs(KEYS) do \
               if redis.call('get', k) == ARGV[2] then redis.pcall('del', k) n = n + 1 end end return n",
        steps: &[
            SELECT,
            Step::EachKey(&[Step::Holder {
                get: call(1, "GET", &[EACH]),
                token: Role::Argument(2),
                held: &[Step::Try(call(2, "DEL", &[EACH])), Step::Count],
                missing: &[],
                other: &[],
            }]),
            Step::Return(Give::Counted),
        ],
    },
    Row {
        name: "release all or none",
        sent_by: "bsm/redislock from 0.10 on",
        text: "local v = redis.call('mget', unpack(KEYS)) for i, _ in ipairs(KEYS) do if v[i] ~= ARGV[1] then \
               return false end end redis.call('del', unpack(KEYS)) return redis.status_reply('OK')",
        steps: &[HELD_BY_ALL, Step::Call(call(1, "DEL", &[Arg::AllKeys])), Step::Return(Give::Status("OK"))],
    },
    Row {
        name: "extend all or none",
        sent_by: "bsm/redislock from 0.10 on",
        text: "local v = redis.call('mget', unpack(KEYS)) for i, _ in ipairs(KEYS) do if v[i] ~= ARGV[1] then \
               return false end end for _, k in ipairs(KEYS) do redis.call('pexpire', k, ARGV[2]) end \
               return redis.status_reply('OK')",
        steps: &[
            HELD_BY_ALL,
            Step::EachKey(&[Step::Call(call(1, "PEXPIRE", &[EACH, A2]))]),
            Step::Return(Give::Status("OK")),
        ],
    },
    Row {
        name: "the shortest lease of all",
        sent_by: "bsm/redislock from 0.10 on",
        text: "local v = redis.call('mget', unpack(KEYS)) for i, _ in ipairs(KEYS) do if v[i] ~= ARGV[1] then \
               return false end end local m = 0 for _, k in ipairs(KEYS) do local t = redis.call('pttl', k) \
               if t > 0 and (m == 0 or t < m) then m = t end end return m",
        steps: &[
            HELD_BY_ALL,
            Step::EachKey(&[Step::KeepLeast(call(1, "PTTL", &[EACH]))]),
            Step::Return(Give::Kept),
        ],
    },
    Row {
        name: "acquire all, or those with my token",
        sent_by: "bsm/redislock from 0.10 on",
        text: "local function e(t) for _, k in ipairs(KEYS) do redis.call('pexpire', k, t) end end \
               local function may() local n = tonumber(ARGV[2]) for _, k in ipairs(KEYS) do \
               if redis.call('getrange', k, 0, n-1) ~= string.sub(ARGV[1], 1, n) then return false end end \
               return true end local s = {} for _, k in ipairs(KEYS) do table.insert(s, k) table.insert(s, ARGV[1]) \
               end if redis.call('msetnx', unpack(s)) ~= 1 then if may() == false then return false end \
               redis.call('mset', unpack(s)) end e(ARGV[3]) return redis.status_reply('OK')",
        steps: &[
            Step::If {
                reply: call(2, "MSETNX", &[Arg::AllKeysWith(TOKEN)]),
                is: Test::Equals(1),
                then: &[],
                otherwise: &[
                    Step::EachKey(&[Step::Prefix {
                        read: call(1, "GETRANGE", &[EACH, Arg::Word("0"), Arg::OneLess(Role::Argument(2))]),
                        token: TOKEN,
                        length: Role::Argument(2),
                        other: FALSE,
                    }]),
                    Step::Call(call(3, "MSET", &[Arg::AllKeysWith(TOKEN)])),
                ],
            },
            Step::EachKey(&[Step::Call(call(0, "PEXPIRE", &[EACH, A3]))]),
            Step::Return(Give::Status("OK")),
        ],
    },
];

const ADD_MILLIS: &[Step] = &[holder(
    &[
        Step::Keep(call(1, "PTTL", &[K1])),
        Step::IfKept { is: Test::Below(0), then: ZERO },
        Step::Call(call(2, "PEXPIRE", &[K1, Arg::KeptPlus(Role::Argument(2))])),
        integer(1),
    ],
    ZERO,
)];
const SETNX: Do = call(0, "SETNX", &[K1, A1]);
const SETNX_EXPIRE: &[Step] = &[Step::If {
    reply: SETNX,
    is: Test::Equals(1),
    then: &[Step::Call(call(1, "EXPIRE", &[K1, A2])), integer(1)],
    otherwise: ZERO,
}];
const SETNX_PEXPIRE: &[Step] = &[Step::If {
    reply: SETNX,
    is: Test::Equals(1),
    then: &[Step::Call(call(1, "PEXPIRE", &[K1, A2])), integer(1)],
    otherwise: ZERO,
}];
const SET_PX: &[Step] = &[Step::Return(Give::Call(call(1, "SET", &[K1, A1, PX, A2])))];
const SET_PX_THIRD: &[Step] = &[Step::Return(Give::Call(call(2, "SET", &[K1, A1, PX, A2])))];
const READ_AND_OK: &[Step] = &[Step::Call(get(1)), Step::Return(Give::Status("OK"))];
const READ_AND_NIL: &[Step] = &[Step::Call(get(1)), Step::Return(Give::Nil)];
/// Redis goes back to the caller's database when the script ends, and so must whoever carries out the call.
const SELECT: Step = Step::Try(call(0, "SELECT", &[Arg::Number(TOKEN)]));
const GET_EACH: Do = call(0, "GET", &[EACH]);
const SET_EACH: Step = Step::EachKey(&[Step::Call(call(1, "SET", &[EACH, A1, PX, A2]))]);
/// MGET reads a key of another type as missing, and so does this.
const HELD_BY_ALL: Step =
    Step::EachKey(&[Step::Shared { get: GET_EACH, token: TOKEN, other: &[Step::Return(Give::Nil)] }]);
