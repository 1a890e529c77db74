//! The parts of the race that can be wrong without a server: framing, replies, keys, medians.
//!
//! What belongs here: mistakes in benches/compare that would only make the results wrong. The loads themselves are tested by
//! a small run: `cargo test --bench compare`.

use std::collections::BTreeSet;

use crate::compare::results::{CPU_PER_REQUEST, HAND_OFF, HERD, LIMIT, OURS, Results, VALKEY};
use crate::compare::wire::{Answer, KEY, KEY_BYTES, Template};
use crate::compare::{limit, table, wire};

mod limit_frames {
    use super::*;

    #[test]
    fn a_request_only_when_all_of_it_is_there() {
        let requests: [&[u8]; 4] =
            [b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n*1\r\n", b"*0\r\n", b"PING\r\n"];
        for request in requests {
            for cut in 0..request.len() {
                assert_eq!(
                    limit::framed(&request[..cut]).unwrap(),
                    None,
                    "{}",
                    request[..cut].escape_ascii()
                );
            }
            assert_eq!(limit::framed(request).unwrap(), Some(request.len()));
            assert_eq!(limit::framed(&[request, b"*3\r\n$"].concat()).unwrap(), Some(request.len()));
        }
    }

    #[test]
    fn nothing_that_is_no_request() {
        let wrong: [&[u8]; 5] =
            [b"*x\r\n", b"*\r\n", b"*1\r\n:1\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$99999999999999999999\r\n"];
        for bytes in wrong {
            assert!(limit::framed(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}

mod the_wire {
    use super::*;

    #[test]
    fn tells_an_answer_only_when_all_of_it_is_there() {
        let answers: [(&[u8], Answer); 7] = [
            (b"+OK\r\n", Answer::Simple),
            (b"-ERR no\r\n", Answer::Error),
            (b":-12\r\n", Answer::Integer(-12)),
            (b"$-1\r\n", Answer::Nil),
            (b"$4\r\n\r\n:1\r\n", Answer::Text(4)),
            (b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", Answer::Array),
            (b"*-1\r\n", Answer::Nil),
        ];
        for (bytes, answer) in answers {
            for cut in 0..bytes.len() {
                assert_eq!(wire::answer(&bytes[..cut]).unwrap(), None, "{}", bytes[..cut].escape_ascii());
            }
            let followed = [bytes, b"+"].concat();
            assert_eq!(wire::answer(&followed).unwrap(), Some((answer, bytes.len())));
        }
    }

    #[test]
    fn writes_the_key_of_a_number_wherever_it_stands() {
        let template = Template::new(&["EVALSHA", "sha", "1", KEY, "owner", KEY]);
        let mut bytes = b"before".to_vec();
        template.write(7, &mut bytes);
        let key = wire::key(7);
        assert_eq!(key.len(), KEY_BYTES);
        let wanted = format!(
            "before*6\r\n$7\r\nEVALSHA\r\n$3\r\nsha\r\n$1\r\n1\r\n${KEY_BYTES}\r\n{key}\r\n$5\r\nowner\r\n\
             ${KEY_BYTES}\r\n{key}\r\n"
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), wanted);
    }

    #[test]
    fn sends_two_requests_together() {
        let [first, second] = [["GET", KEY], ["DEL", KEY]].map(|words| Template::new(&words));
        let (mut apart, mut together) = (Vec::new(), Vec::new());
        [&first, &second].iter().for_each(|template| template.write(7, &mut apart));
        first.then(&second).write(7, &mut together);
        assert_eq!(together.escape_ascii().to_string(), apart.escape_ascii().to_string());
    }

    #[test]
    fn has_a_key_of_its_own_for_each_number() {
        let keys: BTreeSet<String> = (0..10_000).map(wire::key).collect();
        assert_eq!(keys.len(), 10_000);
    }
}

mod results_are {
    use super::*;

    fn race() -> Results {
        let servers = [OURS, LIMIT, VALKEY].map(|name| (name.to_owned(), "of today".to_owned()));
        let mut race = Results { servers: servers.to_vec(), ..Results::default() };
        // The second round simulates a slower machine, the third disturbs one server alone.
        for (server, rounds) in [(OURS, [2.0, 6.0, 2.0]), (LIMIT, [1.0, 3.0, 8.0]), (VALKEY, [3.0, 9.0, 1.0])]
        {
            for value in rounds {
                race.add("acquire", "plain", CPU_PER_REQUEST, server, value);
            }
        }
        race
    }

    #[test]
    fn those_of_a_load_that_was_run_again_and_earlier_ones_of_the_others() {
        let load = |race: &mut Results, load: &str, value| {
            race.add(load, "plain", CPU_PER_REQUEST, OURS, value);
            race.fail(load, OURS, "late");
        };
        let shown = |race: &Results| -> Vec<_> {
            let figures = race.figures.iter();
            figures.map(|figure| (figure.load.clone(), figure.median(OURS).unwrap())).collect()
        };
        let mut earlier = race();
        load(&mut earlier, "GET", 1.0);
        load(&mut earlier, "DEL", 2.0);
        let mut again = Results { servers: earlier.servers.clone(), ..Results::default() };
        load(&mut again, "GET", 3.0);
        load(&mut again, "INCR", 4.0);
        again.keep(earlier.clone()).unwrap();
        let expected = [("acquire", 2.0), ("GET", 3.0), ("DEL", 2.0), ("INCR", 4.0)];
        assert_eq!(shown(&again), expected.map(|(load, value)| (load.to_owned(), value)));
        assert_eq!(again.failed.len(), 3, "that of GET once");
        assert_eq!(again.repeated, [], "no other revision");
        let mut other = Results { machine: vec![("cores".to_owned(), "64".to_owned())], ..again };
        assert!(other.keep(earlier).is_err());
    }

    #[test]
    fn marked_where_a_load_was_repeated_at_another_revision() {
        let at = |revision: &str, loads: &[&str]| {
            let machine = [("cores", "2"), ("revision", revision)];
            let machine = machine.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            let mut race = Results { machine, ..Results::default() };
            loads.iter().for_each(|load| race.add(load, "plain", CPU_PER_REQUEST, OURS, 1.0));
            race
        };
        let mut second = at("b", &["GET", "DEL"]);
        second.keep(at("a", &["GET", "SET"])).unwrap();
        let mut third = at("c", &["DEL"]);
        third.keep(second).unwrap();
        assert_eq!(third.fact("revision"), "a");
        let repeated = third.repeated.iter().map(|(load, revision)| (load.as_str(), revision.as_str()));
        assert_eq!(repeated.collect::<Vec<_>>(), [("GET", "b"), ("DEL", "c")]);
    }

    #[test]
    fn medians_which_one_disturbed_round_does_not_move() {
        let mut race = race();
        let figure = race.figure("acquire", "plain").unwrap();
        assert_eq!(figure.median(OURS), Some(2.0));
        assert_eq!((figure.multiple(LIMIT, OURS), figure.multiple(VALKEY, OURS)), (Some(0.5), Some(1.5)));
        assert_eq!(figure.median("nobody"), None);
        race.add("acquire", "plain", CPU_PER_REQUEST, OURS, 4.0);
        assert_eq!(race.figure("acquire", "plain").unwrap().median(OURS), Some(3.0));
    }

    #[test]
    fn shown_with_shares_multiples_and_what_is_not_there() {
        let mut race = race();
        race.missing.push(("redis 7".to_owned(), "not in the path".to_owned()));
        race.fail("storm", VALKEY, "closed the connection");
        for (server, recipe, micros) in [(OURS, "LOCK", 2.0), (OURS, "BLPOP", 3.0), (VALKEY, "BLPOP", 5.0)] {
            race.add(HAND_OFF, &format!("{recipe}, p50"), "us", server, micros);
            race.add(HERD, &format!("{recipe}, CPU"), "us", server, 10.0 * micros);
        }
        let text = table::markdown(&race);
        for line in [
            "| acquire | 2.00 / - | 3.00 / - | 3.00 / - | 50 % / - | 1.5 x / - |",
            "| LOCK | redlatch | 2.00 | - | - | - | - | 20.0 |",
            "| BLPOP | redlatch | 3.00 (1.5 x) | - | - | - | - | 30.0 (1.5 x) |",
            "| BLPOP | valkey | 5.00 (2.5 x) | - | - | - | - | 50.0 (2.5 x) |",
            "Missing: redis 7: not in the path.",
            "Failed: storm on valkey: closed the connection.",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn shown_for_clusters_as_multiples_of_the_same_round() {
        let mut race = race();
        for (server, rates, cpu) in [(OURS, [10.0, 5.0, 10.0], 40.0), (VALKEY, [1.0, 1.0, 8.0], 400.0)] {
            rates
                .iter()
                .for_each(|rate| race.add("cycle", "1 client, rate", "thousand per second", server, *rate));
            race.add("cycle", "1 client, CPU", "us", server, cpu);
        }
        race.add("commit", "1 client, rate", "thousand per second", VALKEY, 1.0);
        let lines: Vec<_> = table::clusters(&race).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(lines, ["| cycle, 1 client | 1.00 x, 40.0 | - | 0.20 x, 400 |", ""]);
    }

    #[test]
    fn read_as_they_were_written() {
        let (race, file) = (race(), std::env::temp_dir().join(format!("race-{}.json", std::process::id())));
        race.write(&file).unwrap();
        let read = Results::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((read.figures, read.servers), (race.figures, race.servers));
    }
}
