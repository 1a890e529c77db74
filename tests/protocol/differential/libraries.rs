//! Function libraries: valid ones that replace each other, invalid ones, and calls of their functions.

use super::grammar::Words;
use crate::support::rng::Rng;

/// A request about libraries, or a call of a function.
pub(crate) fn request(rng: &mut Rng) -> Words {
    match rng.below(16) {
        0..4 => {
            let mut words = spell(&["FUNCTION", "LOAD"]);
            if !rng.one_in(3) {
                words.extend(spell(&["REPLACE"]));
            }
            let code = if rng.one_in(3) { BAD } else { GOOD };
            words.extend(spell(&[rng.pick(code)]));
            words
        }
        4 => spell(&["FUNCTION", "DELETE", rng.pick(NAMES)]),
        5 => match rng.below(4) {
            0 => spell(&["FUNCTION", "LIST"]),
            1 => spell(&["FUNCTION", "LIST", "WITHCODE"]),
            2 => spell(&["FUNCTION", "LIST", "LIBRARYNAME", rng.pick(&["first", "f*", "*", "nobody"])]),
            _ => spell(&["FUNCTION", "LIST", "WITHCODE", "LIBRARYNAME", rng.pick(NAMES)]),
        },
        6 => spell(&["FUNCTION", rng.pick(&["STATS", "KILL", "STATS", "nothing"])]),
        7 if rng.one_in(6) => spell(&["FUNCTION", "FLUSH", rng.pick(&["SYNC", "ASYNC", "never"])]),
        _ => {
            let name = rng.pick(&["FCALL", "FCALL", "FCALL_RO", "fcall"]);
            let count = rng.pick(&["0", "1", "1", "1", "2", "-1", "3", "x"]);
            let mut words = spell(&[name, rng.pick(FUNCTIONS), count, rng.pick(KEYS)]);
            words.extend((0..rng.below(3)).map(|_| rng.pick(&["me", "7", ""]).as_bytes().to_vec()));
            words
        }
    }
}

/// A call that runs a request inside a function.
pub(crate) fn around(inner: &Words, rng: &mut Rng) -> Words {
    let mut words = spell(&[rng.pick(&["FCALL", "FCALL", "FCALL_RO"]), rng.pick(CARRIERS), "0"]);
    words.extend(inner.iter().cloned());
    words
}

fn spell(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

const NAMES: &[&str] = &["first", "second", "third", "carriers", "nobody", ""];
const FUNCTIONS: &[&str] = &["fa", "fa", "fb", "fb", "fc", "reads", "fails", "FA", "nobody"];
const CARRIERS: &[&str] = &["calls", "pcalls", "calls_in_3"];
const KEYS: &[&str] = &["k0", "k1", "n0", "h0", "l0"];

const GOOD: &[&str] = &[
    "#!lua name=first\nredis.register_function('fa', function(keys, args) return {keys[1], args[1], #args} end)",
    "#!lua name=first\nlocal function get(keys) return redis.call('get', keys[1]) end\n\
     redis.register_function('fa', get)\nredis.register_function('fb', get)",
    "#!lua name=second\nredis.register_function{function_name='fb', description='writes, it says not', \
     callback=function(keys, args) return redis.call('set', keys[1], args[1]) end, flags={'no-writes'}}",
    "#!lua name=second\nredis.register_function{function_name='fc', \
     callback=function(keys, args) return redis.call('set', keys[1], args[1]) end, flags={'allow-stale', 'allow-oom'}}",
    "#!lua name=third\nlocal count = 0\nredis.register_function('fb', function() count = count + 1 return count end)",
    "#!lua name=third\nredis.register_function{function_name='reads', flags={'no-writes', 'allow-cross-slot-keys'}, \
     callback=function(keys) return redis.pcall('exists', unpack(keys)) end}\n\
     redis.register_function('fails', function(keys) error({err = 'OWN ' .. tostring(keys[1])}) end)",
    "#!lua name=carriers\nredis.register_function('calls', function(_, args) return redis.call(unpack(args)) end)\n\
     redis.register_function{function_name='pcalls', flags={'no-writes'}, \
     callback=function(_, args) return redis.pcall(unpack(args)) end}\n\
     redis.register_function('calls_in_3', function(_, args) redis.setresp(3) return redis.call(unpack(args)) end)",
];

const BAD: &[&str] = &[
    "redis.register_function('fa', function() end)",
    "#!lua\nredis.register_function('fa', function() end)",
    "#!js name=first\nredis.register_function('fa', function() end)",
    "#!lua name=first",
    "#!lua name=first junk=1\nredis.register_function('fa', function() end)",
    "#!lua name=first name=second\nredis.register_function('fa', function() end)",
    "#!lua name=no-dash\nredis.register_function('fa', function() end)",
    "#!lua name=first\nredis.register_function('fa', function() end)\nredis.register_function('fa', function() end)",
    "#!lua name=first\nredis.register_function('f-a', function() end)",
    "#!lua name=first\nredis.register_function('fa')",
    "#!lua name=first\nredis.register_function('fa', 1)",
    "#!lua name=first\nredis.register_function(1, function() end)",
    "#!lua name=first\nredis.register_function{function_name='fa', callback=function() end, flags={'junk'}}",
    "#!lua name=first\nredis.register_function{function_name='fa', callback=function() end, flags=1}",
    "#!lua name=first\nredis.register_function{function_name='fa', callback=function() end, junk=1}",
    "#!lua name=first\nredis.register_function{function_name='fa'}",
    "#!lua name=first\nredis.register_function{callback=function() end}",
    "#!lua name=first\nredis.register_function{}",
    "#!lua name=first\nredis.register_function()",
    "#!lua name=first\nreturn redis.call('get', 'k0')",
    "#!lua name=first\nnothing.here = 1",
    "#!lua name=first\nundeclared = 1",
    "#!lua name=first\nreturn syntax error",
    "#!lua name=first\nerror('while loading')",
    "",
];
