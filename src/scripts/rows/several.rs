//! Rows that take, renew or release several keys at once.
//!
//! Owns    nothing but the list. Each text is our own spelling of what a client sends, each program what it does.

use super::prelude::*;

pub(super) const ROWS: &[Row] = &[
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
