//! Native scripts: the texts that clients send, and mutations of them, compared with the interpreter and a real Redis.
//!
//! What belongs here: tests that need files or a server in addition to the reader of scripts. Two environment variables name
//! the needs of the ignored tests: `REDLATCH_SCRIPTS_DIR`, filled by `tests/protocol/scripts/collect.py`, and
//! `REDLATCH_REDIS_SERVER`.

pub(crate) mod draw;
#[cfg(feature = "lua")]
mod functions;
#[cfg(feature = "lua")]
mod known;
#[cfg(feature = "lua")]
pub(crate) mod law;
pub(crate) mod mutate;
mod real;
#[cfg(feature = "lua")]
pub(crate) mod runner;

use std::collections::BTreeMap;
use std::path::PathBuf;

use redlatch_core::scripts::native::Program;
use redlatch_core::scripts::{Inputs, KNOWN};

use crate::support::shapes::shapes;

/// The collected texts by their SHA-1, from the directory that `REDLATCH_SCRIPTS_DIR` names.
pub(crate) fn collected() -> Option<BTreeMap<String, Vec<u8>>> {
    let directory = std::env::var_os("REDLATCH_SCRIPTS_DIR").map(PathBuf::from)?;
    let mut found = BTreeMap::new();
    for known in KNOWN {
        if let Ok(text) = std::fs::read(directory.join(format!("{}.lua", known.sha1))) {
            found.insert(known.sha1.to_owned(), text);
        }
    }
    assert!(!found.is_empty(), "{} holds none of the known texts", directory.display());
    Some(found)
}

mod corpus {
    use super::*;

    /// With keys and arguments for many clients at once.
    fn assert_fits(program: &Program, name: &str) {
        let (keys, args) = ([b"a key of some length".as_slice(); 40], [b"7".as_slice(); 40]);
        assert!(program.has_named_commands() || program.fits(Inputs::new(&keys, &args)), "{name}");
    }

    #[test]
    #[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
    fn every_text_that_a_client_is_known_to_send_is_native_or_listed_as_interpreted() {
        let collected = collected().expect("REDLATCH_SCRIPTS_DIR names the collected texts");
        let mut absent = Vec::new();
        for known in KNOWN {
            let Some(text) = collected.get(known.sha1) else {
                absent.push(known.client);
                continue;
            };
            match Program::read(text) {
                Some(program) if known.is_native => assert_fits(&program, known.client),
                program => assert_eq!(program.is_some(), known.is_native, "{}: is native", known.client),
            }
        }
        eprintln!("{} texts checked, {} not collected: {absent:?}", collected.len(), absent.len());
    }

    #[test]
    fn every_shape_is_native() {
        for (name, script) in shapes() {
            let program = Program::read(script.as_bytes());
            assert_fits(&program.unwrap_or_else(|| panic!("{name}: not native: {script}")), name);
        }
    }

    #[test]
    fn a_script_that_could_run_long_or_call_anything_is_not_native() {
        for script in [
            "while true do end",
            "repeat until true",
            "for i = 1, 1e9 do end",
            "for i = 1, 2 do for j = 1, 2 do end end",
            "for i, k in ipairs(KEYS) do redis.call('del', unpack(ARGV)) end",
            "local s = 'x' for i = 1, 9 do s = s .. s end",
            "local s = 'x' for i, k in ipairs(KEYS) do s = s .. k end return s",
            "local l = {} for i = 1, 2 do table.insert(l, 'x' .. (l[1] or '')) end",
            "local n = redis.call('get', KEYS[1]) for i = 1, n do end",
            "local l = redis.call('lrange', KEYS[1], 0, -1) for i, v in ipairs(l) do end",
            "local function f() return f() end return f()",
            "local function f() end local function g() f() end g()",
            "redis.call('blpop', KEYS[1], 0)",
            "redis.call('keys', '*')",
            "local name = 'get' redis.call(name .. 'set', KEYS[1])",
            "x = 1",
            "return x",
            "return redis.sha1hex('')",
            "local s = 'x' return s:rep(3)",
        ] {
            assert!(Program::read(script.as_bytes()).is_none(), "{script}");
        }
    }

    #[test]
    fn a_call_that_leaves_the_bounds_does_not_fit() {
        let program = |script: &str| Program::read(script.as_bytes()).expect("a native script");
        let publish = program("redis.call(ARGV[1], KEYS[1], 'x')");
        let fits = |program: &Program, keys: &[&[u8]], args: &[&[u8]]| program.fits(Inputs::new(keys, args));
        assert!(fits(&publish, &[b"k"], &[b"publish"]) && fits(&publish, &[b"k"], &[b"SPUBLISH"]));
        assert!(!fits(&publish, &[b"k"], &[b"set"]) && !fits(&publish, &[b"k"], &[]));
        let counted = program("local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + 1 end return n");
        assert!(fits(&counted, &[], &[b"1000"]));
        assert!(
            !fits(&counted, &[], &[b"10000"]) && !fits(&counted, &[], &[b"x"]) && !fits(&counted, &[], &[])
        );
        let each = program("for i, k in ipairs(KEYS) do redis.call('del', k) end");
        let keys: [&[u8]; 10_000] = [b"k"; 10_000];
        assert!(fits(&each, &keys[..1_000], &[]) && !fits(&each, &keys, &[]));
        assert!(!fits(&each, &[b"k", &[b'x'; 64 * 1024]], &[]), "arguments are large, too");
        let spread = program("return redis.call('del', unpack(KEYS))");
        assert!(fits(&spread, &keys[..7_000], &[]) && !fits(&spread, &keys, &[]));
        // The second loop runs as often as the first one adds elements.
        let twice = program(
            "local l = {} for i, k in ipairs(KEYS) do table.insert(l, k) table.insert(l, k) end \
             for i, k in ipairs(l) do redis.call('del', k) end",
        );
        assert!(fits(&twice, &keys[..500], &[]) && !fits(&twice, &keys[..1_500], &[]));
    }

    #[test]
    fn keys_that_are_not_declared_are_told_or_make_the_reach_open() {
        let undeclared = |script: &str| -> Option<Vec<Vec<u8>>> {
            let program = Program::read(script.as_bytes()).expect("a native script");
            let args: [&[u8]; 1] = [b"argument"];
            let keys = program.undeclared(args.as_slice().into())?;
            Some(keys.map(<[u8]>::to_vec).collect())
        };
        assert_eq!(undeclared("redis.call('get', KEYS[1])"), Some(vec![]));
        assert_eq!(undeclared("local k = KEYS[2] redis.call('get', k)"), Some(vec![]));
        assert_eq!(undeclared("for i, k in ipairs(KEYS) do redis.call('del', k) end"), Some(vec![]));
        assert_eq!(undeclared("for i = 1, #KEYS do redis.call('del', KEYS[i]) end"), Some(vec![]));
        assert_eq!(undeclared("redis.call('del', unpack(KEYS))"), Some(vec![]));
        assert_eq!(undeclared("redis.call('get', 'literal')"), Some(vec![b"literal".to_vec()]));
        assert_eq!(undeclared("local k = ARGV[1] redis.call('get', k)"), Some(vec![b"argument".to_vec()]));
        assert_eq!(undeclared("redis.call('publish', 'channel', 'x')"), Some(vec![]));
        assert_eq!(undeclared("redis.call('get', KEYS[1] .. ':1')"), None);
        assert_eq!(undeclared("local k = KEYS[1] k = 'other' redis.call('get', k)"), None);
        assert_eq!(undeclared("for i, k in ipairs(ARGV) do redis.call('del', k) end"), None);
        assert_eq!(undeclared("redis.call('mset', unpack(ARGV))"), None);
        assert_eq!(undeclared("redis.call('mset', KEYS[1], unpack(ARGV))"), None);
        assert_eq!(undeclared("redis.call('mset', KEYS[1], unpack(KEYS))"), Some(vec![]));
    }
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Program::read(&bytes);
        }

        #[test]
        fn tokens_never_panic(words in proptest::collection::vec(0..mutate::WORDS.len(), 0..200)) {
            let text: Vec<_> = words.into_iter().map(|word| mutate::WORDS[word]).collect();
            let _ = Program::read(text.join(" ").as_bytes());
        }
    }

    /// A deep or wide program is not run on a small stack, and Lua would not compile all of it.
    #[test]
    fn a_script_that_is_too_deep_or_too_wide_is_not_native() {
        let repeated = |head: &str, piece: &str, tail: &str| format!("{head}{}{tail}", piece.repeat(1_000));
        for script in [
            repeated("return 1", " + 1", ""),
            repeated("return 1", " .. 1", ""),
            repeated("return ", "not ", "1"),
            repeated("return ", "(", ""),
            repeated("local a = KEYS return a", "[1]", ""),
            repeated("redis.call('del'", ", KEYS[1]", ")"),
            repeated("return {", "1, ", "}"),
            repeated("", "do ", ""),
            repeated("", "local a ", ""),
            format!("return {}1{}", "(".repeat(50), " + 1 + 1 + 1)".repeat(50)),
        ] {
            assert!(Program::read(script.as_bytes()).is_none(), "{script:.80}");
        }
    }

    #[test]
    fn endless_pieces_are_no_scripts() {
        for piece in [
            "(", "a.", "--[[", "[==[", "'\\", "local a ", "if a then ", "f(", "((a))", "KEYS[1]", "return ((",
        ] {
            let text = piece.repeat(16 * 1024 / piece.len());
            assert!(Program::read(text.as_bytes()).is_none(), "{piece}");
        }
    }
}

mod against_real_servers {
    use super::*;

    /// A native script that sends its calls to a real Redis behaves like that Redis' own interpreter.
    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn native_scripts_do_what_redis_does() {
        let mut redis = real::Redis::start();
        let mut scripts: Vec<String> = shapes().into_iter().map(|(_, text)| text).collect();
        scripts.extend(
            collected().unwrap_or_default().into_values().filter_map(|text| String::from_utf8(text).ok()),
        );
        // A key with under a millisecond left may exist for one of two reads and not for the other.
        let ends_by_chance = |script: &str| script.contains("'PX', 1)") || script.contains("\"PX\", 1)");
        let native = scripts
            .iter()
            .filter(|script| Program::read(script.as_bytes()).is_some() && !ends_by_chance(script));
        let cases: usize = native.map(|script| redis.compare(script, 20)).sum();
        eprintln!("{} scripts, {cases} cases", scripts.len());
        assert!(cases > scripts.len(), "most scripts must have fitted");
    }
}
