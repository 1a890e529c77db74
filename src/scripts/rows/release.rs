//! Rows that give a lock back.
//!
//! Owns    nothing but the list. Each text is our own spelling of what a client sends, each program what it does.

use super::prelude::*;

pub(super) const ROWS: &[Row] = &[
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
        name: "compare-and-delete, then a message in JSON",
        sent_by: "simple-redis-mutex",
        text: "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], \
               string.format('{ \"key\": \"%s\", \"value\": \"%s\" }', KEYS[1], ARGV[1])) end",
        steps: &[holder(
            &[
                Step::Call(call(1, "DEL", &[K1])),
                Step::Call(call(
                    2,
                    "PUBLISH",
                    &[
                        K2,
                        Arg::Format(&["{ \"key\": \"", "\", \"value\": \"", "\" }"], &[Role::Key(1), TOKEN]),
                    ],
                )),
            ],
            &[],
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
];
