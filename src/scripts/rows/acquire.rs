//! Rows that take a lock, or renew the one that is held.
//!
//! Owns    nothing but the list. Each text is our own spelling of what a client sends, each program what it does.

use super::prelude::*;

pub(super) const ROWS: &[Row] = &[
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
];
