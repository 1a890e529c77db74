//! The script recogniser against the world: the texts that clients really send, mutations of them, and a real Redis.
//!
//! What belongs here: anything that needs files or a server beside the recogniser. Laws over the table and the folding
//! rules stand with the code. Two environment variables widen the run, and each test says so when it is skipped:
//! `REDLATCH_SCRIPTS_DIR`, filled by `tests/scripts/collect.py`, and `REDLATCH_REDIS_SERVER`, the path of a redis-server.

#[cfg(feature = "lua")]
#[path = "scripts/law.rs"]
mod law;
#[path = "scripts/mutate.rs"]
mod mutate;
#[path = "scripts/real.rs"]
mod real;

use std::collections::BTreeMap;
use std::path::PathBuf;

use redlatch::scripts::{KNOWN, Shape, recognise, texts};

/// The collected texts by their SHA-1, or a word on why there are none.
fn collected() -> Option<BTreeMap<String, Vec<u8>>> {
    let Some(directory) = std::env::var_os("REDLATCH_SCRIPTS_DIR").map(PathBuf::from) else {
        eprintln!("skipped: REDLATCH_SCRIPTS_DIR is not set");
        return None;
    };
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

    #[test]
    fn every_text_that_a_client_sends_lands_on_its_row() {
        let Some(collected) = collected() else { return };
        let mut absent = Vec::new();
        for known in KNOWN {
            let Some(text) = collected.get(known.sha1) else {
                absent.push(known.client);
                continue;
            };
            let found = recognise(text).unwrap_or_else(|| panic!("{}: not recognised", known.client));
            assert_eq!(found.name(), known.row, "{}", known.client);
        }
        eprintln!("{} texts checked, {} not collected: {absent:?}", collected.len(), absent.len());
    }

    #[test]
    fn every_known_text_names_a_row_of_the_table() {
        let names: Vec<_> = texts().into_iter().map(|(_, name)| name).collect();
        for known in KNOWN {
            assert!(names.contains(&known.row), "{}: {}", known.client, known.row);
        }
    }
}

mod mutations {
    use super::*;

    /// Every mutation is another script: it has no shape, another shape, or other operands in the same shape.
    #[test]
    fn of_a_recognised_script_are_never_taken_for_it() {
        // One of every hundred combined spellings would do; they differ from each other in one piece at a time.
        let own = texts().into_iter().enumerate().filter(|(at, _)| *at < 60 || at % 23 == 0);
        let mut scripts: Vec<String> = own.map(|(_, (text, _))| text).collect();
        let found = collected().unwrap_or_default();
        scripts.extend(found.into_values().filter_map(|text| String::from_utf8(text).ok()));
        for script in scripts {
            let shape = Shape::of(script.as_bytes()).unwrap();
            for mutated in mutate::all(&script) {
                let Ok(other) = Shape::of(mutated.as_bytes()) else { continue };
                let same = other.canonical() == shape.canonical() && other.holes() == shape.holes();
                assert!(!same || mutate::means_the_same(&script, &mutated), "{script}\n  {mutated}");
            }
        }
    }
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = recognise(&bytes);
        }

        #[test]
        fn tokens_never_panic(words in proptest::collection::vec(0..mutate::WORDS.len(), 0..200)) {
            let text: Vec<_> = words.into_iter().map(|word| mutate::WORDS[word]).collect();
            let _ = recognise(text.join(" ").as_bytes());
        }

        #[test]
        fn blanks_and_comments_between_tokens_change_nothing(
            row in any::<prop::sample::Index>(),
            blanks in proptest::collection::vec(0..mutate::BLANKS.len(), 64),
        ) {
            let texts = texts();
            let text = &texts[row.index(texts.len())].0;
            let mut spread = String::new();
            for (at, token) in mutate::tokens(text).into_iter().enumerate() {
                spread.push_str(token);
                // Lua wants the parenthesis of a call on the line of what is called, so these blanks hold no line end.
                spread.push_str(mutate::BLANKS[blanks[at % blanks.len()]]);
            }
            let shape = Shape::of(text.as_bytes()).unwrap();
            let spread = Shape::of(spread.as_bytes()).unwrap();
            prop_assert_eq!(spread.canonical(), shape.canonical());
        }
    }

    #[test]
    fn endless_pieces_are_no_scripts() {
        for piece in [
            "(",
            "a.",
            "--[[",
            "[==[",
            "'\\",
            "local a ",
            "if a then ",
            "f(",
            "((a))",
            "KEYS[1]",
            "return ((",
        ] {
            let text = piece.repeat(16 * 1024 / piece.len());
            assert!(recognise(text.as_bytes()).is_none(), "{piece}");
        }
    }
}

mod differential {
    use super::*;

    /// The native program and the interpreter of a real Redis agree on reply, error text and what is left behind.
    #[test]
    fn native_programs_do_what_redis_does() {
        let Some(mut redis) = real::Redis::from_environment() else { return };
        let mut scripts: Vec<String> = texts().into_iter().map(|(text, _)| text).collect();
        scripts.extend(
            collected().unwrap_or_default().into_values().filter_map(|text| String::from_utf8(text).ok()),
        );
        let mut cases = 0;
        for (at, script) in scripts.iter().enumerate() {
            cases += redis.compare(script, at);
        }
        eprintln!("{} scripts, {cases} cases", scripts.len());
        assert!(cases > scripts.len(), "most scripts must have fitted");
    }

    /// A mutation that still is some row of the table does what its own text says.
    #[test]
    fn mutations_that_are_recognised_do_what_they_say() {
        let Some(mut redis) = real::Redis::from_environment() else { return };
        let mut cases = 0;
        for (at, (text, _)) in texts().into_iter().enumerate().filter(|(at, _)| *at < 60 || at % 97 == 0) {
            for mutated in mutate::all(&text).into_iter().filter(|text| recognise(text.as_bytes()).is_some())
            {
                cases += redis.compare(&mutated, at);
            }
        }
        eprintln!("{cases} cases");
    }
}
