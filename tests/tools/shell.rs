//! `redlatch take`, `renew`, `release` and `mine`: a lock that one process takes, and others renew and release.
//!
//! Belongs here  what a shell sees of such a lock: answers, refusals, exit codes, the place in the queue.
//! Time          stands still, and moves by TEST.CLOCK. A test waits for a line or for the end of a process.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Output, Stdio};

use crate::support::binary::{Running, ended, redlatch};
use crate::support::contend::contend;
use crate::support::real::RealServer;

/// A server whose clock stands still.
fn server() -> Running {
    let server = Running::start(redlatch().args(["--port", "auto", "--enable-test-commands", "local"]));
    assert!(server.ask("TEST.CLOCK FREEZE").starts_with(':'));
    server
}

/// The exit code, the output and the error stream of `redlatch WORDS --url URL`.
fn at(url: &str, words: &str) -> (Option<i32>, String, String) {
    let words: Vec<&str> = words.split(' ').collect();
    ended(redlatch().args(words).args(["--url", url]))
}

fn asked(server: &Running, words: &str) -> (Option<i32>, String, String) {
    at(&server.url(), words)
}

/// The output of a command that must succeed.
fn done(server: &Running, words: &str) -> String {
    let (code, said, warned) = asked(server, words);
    assert_eq!((code, warned.as_str()), (Some(0), ""), "{words}");
    said
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

fn left(server: &Running) -> i64 {
    server.ask("PTTL lock:a").trim_start_matches(':').trim_end().parse().unwrap()
}

const MINUTE: u64 = 60_000;

mod holding {
    use super::*;

    #[test]
    fn a_lock_is_taken_renewed_and_released_by_three_processes() {
        let server = server();
        assert_eq!(done(&server, "take lock:a --for 30m --as job-1"), "1 job-1\n");
        server.pass(25 * MINUTE);
        assert_eq!(left(&server), 5 * 60_000);
        assert_eq!(done(&server, "renew lock:a --as job-1"), "1 job-1\n");
        assert_eq!(left(&server), 30 * 60_000, "as long as it was");
        assert_eq!(done(&server, "renew lock:a --as job-1 --for 1h --token 1"), "1 job-1\n");
        assert_eq!(left(&server), 60 * 60_000);
        assert_eq!(done(&server, "renew lock:a --as job-1 --for 10m"), "1 job-1\n");
        assert_eq!(left(&server), 10 * 60_000, "it may be shorter");
        assert_eq!(done(&server, "release lock:a --as job-1"), "lock:a is released\n");
        assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n");
    }

    #[test]
    fn programs_read_json() {
        let server = server();
        let now: u64 = server.ask("TEST.CLOCK ADVANCE 0").trim_start_matches(':').trim_end().parse().unwrap();
        let taken = json(&done(&server, "take lock:a --for 30m --as job-1 --json"));
        let known = ["taken", "key", "owner", "token", "lease"].map(|name| taken[name].clone());
        assert_eq!(serde_json::Value::from_iter(known), json(r#"[true, "lock:a", "job-1", 1, 1800000]"#));
        // The machine counts the end of the lease by its own clock, which does not stand still.
        assert!(taken["until"].as_u64().unwrap() > now, "{taken} and {now}");
        let (code, said, warned) = asked(&server, "take lock:a --for 1m --as job-2 --json");
        let refused = json(&said);
        assert_eq!((code, warned.as_str(), &refused["taken"]), (Some(75), "", &false.into()));
        assert_eq!(
            (&refused["held"]["holders"][0]["owner"], &refused["owner"]),
            (&"job-1".into(), &"job-2".into())
        );
        let renewed = json(&done(&server, "renew lock:a --as job-1 --json"));
        assert_eq!((&renewed["renewed"], &renewed["lease"]), (&true.into(), &1_800_000.into()));
        let mine = json(&done(&server, "mine --as job-1 --json"));
        assert_eq!((mine.as_array().unwrap().len(), &mine[0]["key"]), (1, &"lock:a".into()));
        assert_eq!(json(&done(&server, "release lock:a --as job-1 --json"))["released"], true);
        let (code, said, warned) = asked(&server, "renew lock:a --as job-1 --json");
        let lost = json(&said);
        assert_eq!((code, warned.as_str(), &lost["renewed"]), (Some(76), "", &false.into()));
        assert_eq!(lost["explained"][0], "free: nobody holds it");
        let free = asked(&server, "mine --as job-1 --json");
        assert_eq!((free.0, free.1.as_str()), (Some(1), "[]\n"));
    }

    #[test]
    fn mine_lists_what_the_owner_holds_and_nothing_else() {
        let server = server();
        for words in [
            "take lock:a --for 1m --as job-1",
            "take lock:b --for 1m --as job-2",
            "take pool --for 1m --as job-1 --permits 2 --of 3",
            "take pool --for 1m --as job-2 --permits 1 --of 3",
        ] {
            done(&server, words);
        }
        let said = done(&server, "mine --as job-1");
        let rows: Vec<Vec<&str>> =
            said.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 2, "{said}");
        assert_eq!(
            (&rows[0][..3], &rows[1][..4]),
            (&["lock:a", "exclusive", "job-1"][..], &["pool", "permits", "2/3", "job-1"][..])
        );
        let none = asked(&server, "mine --as job-3");
        assert_eq!((none.0, none.1.lines().count()), (Some(1), 1), "the header alone");
    }

    #[test]
    fn an_owner_that_asks_again_has_the_same_grant() {
        let server = server();
        // The answer to this one reaches nobody.
        server.ask("LOCK.ACQUIRE lock:a job-1 LEASE 60000");
        server.pass(MINUTE / 2);
        assert_eq!(done(&server, "take lock:a --for 1m --as job-1"), "1 job-1\n");
        assert_eq!(left(&server), 60_000);
        assert_eq!(done(&server, "take lock:a --for 2m --wait 1h --as job-1"), "1 job-1\n");
        assert_eq!(left(&server), 120_000);
        let (code, _, said) = asked(&server, "take lock:a --for 1m --as job-1 --shared");
        assert!(code == Some(79) && said.contains("holds this lock in another way: exclusive"), "{said}");
        assert_eq!(left(&server), 120_000, "it is held as it was");
    }

    #[test]
    fn one_of_several_is_taken_printed_and_released_by_its_key() {
        let server = server();
        done(&server, "take port:1 --for 1h --as job-1");
        let take = "take --one-of port:{1..2} --one-of port:x --for 1h";
        assert_eq!(done(&server, &format!("{take} --as job-2")), "2 job-2 port:2\n");
        assert_eq!(done(&server, &format!("{take} --as job-2")), "2 job-2 port:2\n", "it is asked again");
        let third = json(&done(&server, &format!("{take} --as job-3 --json")));
        assert_eq!((&third["taken"], &third["key"]), (&true.into(), &"port:x".into()));
        let (code, said, refused) = asked(&server, &format!("{take} --as job-4"));
        assert_eq!((code, said.as_str()), (Some(75), ""));
        assert!(
            refused.starts_with("redlatch: not taken: none of 3 locks is free: port:1 is held\n"),
            "{refused}"
        );
        assert!(refused.ends_with("To take it by force: redlatch break port:1 --token 1\n"), "{refused}");
        let (code, said, _) = asked(&server, &format!("{take} --as job-4 --json"));
        let refused = json(&said);
        assert_eq!((code, &refused["held"]["key"], refused.get("key")), (Some(75), &"port:1".into(), None));
        assert_eq!(done(&server, "release port:2 --as job-2"), "port:2 is released\n");
        assert_eq!(done(&server, &format!("{take} --as job-4")), "4 job-4 port:2\n");
    }

    #[test]
    fn each_key_of_one_of_several_has_the_kind_that_the_flags_say() {
        let server = server();
        for (owner, key) in [("a", "gpu:0"), ("b", "gpu:0"), ("c", "gpu:1")] {
            let words = format!("take --one-of gpu:{{0,1}} --permits 1 --of 2 --for 1h --as {owner}");
            let said = done(&server, &words);
            assert!(said.ends_with(&format!(" {owner} {key}\n")), "{said}");
        }
    }

    #[test]
    fn readers_share_a_lock_and_each_renews_and_releases_its_own_part() {
        let server = server();
        for (key, options) in [("lock:r", "--shared"), ("lock:p", "--permits 1 --of 2")] {
            for owner in ["one", "two"] {
                done(&server, &format!("take {key} --for 10m --as {owner} {options}"));
            }
            let third = asked(&server, &format!("take {key} --for 10m --as three"));
            assert_eq!(third.0, Some(75), "an exclusive lock: {}", third.2);
            server.pass(9 * MINUTE);
            done(&server, &format!("renew {key} --as two"));
            server.pass(2 * MINUTE);
            assert_eq!(asked(&server, &format!("renew {key} --as one")).0, Some(76));
            done(&server, &format!("release {key} --as two"));
            done(&server, &format!("take {key} --for 10m --as three"));
        }
        let (code, _, said) = asked(&server, "take lock:q --for 1m --as one --permits 3 --of 2");
        assert!(code == Some(64) && said.contains("--permits: must be no more than --of"), "{said}");
    }
}

mod refusals {
    use super::*;

    #[test]
    fn a_refusal_says_who_holds_the_lock_why_and_until_when() {
        let server = server();
        let mut take = redlatch();
        take.args(["take", "lock:a", "--for", "30m", "--as", "job-1", "--why", "release 4.1"]);
        take.args(["--meta", "ci=build 7", "--url", &server.url()]);
        assert!(take.output().unwrap().status.success());
        server.pass(10 * MINUTE);
        let (code, said, refused) = asked(&server, "take lock:a --for 30m --as job-2");
        assert_eq!((code, said.as_str()), (Some(75), ""), "{refused}");
        let lines: Vec<&str> = refused.lines().collect();
        assert_eq!(
            lines[..3],
            ["redlatch: not taken: lock:a is held", "  key:    lock:a", "  holder: job-1"]
        );
        for part in [
            "\n  reason: release 4.1\n",
            "\n  ci: build 7\n",
            ", for 10 min 0 s\n",
            "\n  lease:  20 min 0 s left, until 20",
            "\n  token:  1\n",
            "\n  queue:  0 waiting\n",
            "To take it by force: redlatch break lock:a --token 1\n",
        ] {
            assert!(refused.contains(part), "{part:?}: {refused}");
        }
        let seen = asked(&server, "who lock:a").1;
        assert!(seen.contains("reason: release 4.1"), "{seen}");
        assert!(seen.contains("\n  where:  its connection is gone\n"), "{seen}");
        let listed = asked(&server, "ls").1;
        assert!(listed.contains("  10 min 0 s  20 min 0 s        0  gone\n"), "{listed}");
        let raw = done(&server, "who lock:a --json");
        assert_eq!(json(&raw)["holders"][0]["held"], 600_000, "a program reads numbers");
    }

    #[test]
    fn a_user_who_may_not_ask_for_the_holder_is_told_nothing_of_it() {
        let server = server();
        server.ask("ACL SETUSER limited on >secret %W~lock:* +lock.acquire +lock.release +hello +client");
        done(&server, "take lock:a --for 30m --as job-1 --why secrets");
        let limited = format!("redis://limited:secret@{}", server.address());
        for (words, code) in [
            ("take lock:a --for 1m --as me", 75),
            ("renew lock:a --as me", 77),
            ("release lock:a --as me", 76),
        ] {
            for format in ["", " --json"] {
                let (got, said, refused) = at(&limited, &format!("{words}{format}"));
                assert_eq!(got, Some(code), "{words}: {said}{refused}");
                let told = ["job-1", "secrets", "token", "30 min"].iter().any(|word| refused.contains(word));
                assert!(!told && !said.contains("job-1") && !said.contains("secrets"), "{said}{refused}");
            }
        }
        let (code, _, refused) = at(&limited, "take other --for 1m --as me");
        assert!(code == Some(77) && refused.contains("NOPERM"), "{refused}");
    }

    #[test]
    fn what_is_no_lock_is_refused_and_stays_as_it_is() {
        let server = server();
        server.ask("SET plain hello\r\nRPUSH list x");
        let (code, _, said) = asked(&server, "take plain --for 1m --as me");
        assert!(code == Some(75) && said.contains("an unknown owner: not a lock, but a string"), "{said}");
        let (code, _, said) = asked(&server, "take list --for 1m --as me");
        assert!(code == Some(79) && said.contains("WRONGTYPE"), "{said}");
        for key in ["plain", "list"] {
            assert_eq!(asked(&server, &format!("renew {key} --as me")).0, Some(76));
            assert_eq!(asked(&server, &format!("release {key} --as me")).0, Some(76));
        }
        assert_eq!(server.ask("GET plain\r\nLLEN list"), "$5\r\nhello\r\n:1\r\n");
    }

    #[test]
    fn bad_options_are_refused_in_one_line_and_nothing_is_asked() {
        let server = server();
        let long = format!("take lock:a --for 1m --as {}", "x".repeat(1025));
        let many = "take lock:a --for 1m --as me".to_owned() + &" --meta f=1".repeat(65);
        let large = format!("take lock:a --for 1m --as me --why {}", "x".repeat(4096));
        for (words, part) in [
            (&*long, "--as: a name has 1 to 1024 bytes"),
            ("take lock:a --for 1m --as ", "--as: a name has 1 to 1024 bytes"),
            (&large, "at most 64 fields of 4096 bytes in all"),
            (&many, "at most 64 fields of 4096 bytes in all"),
            ("take lock:a --for 0 --as me", "must be at least 1ms"),
            ("take lock:a --for soon --as me", "must be a time"),
            ("take lock:a --as me", "--for"),
            ("take lock:a --for 1m", "--as"),
            ("take --for 1m --as me", "KEY"),
            ("take lock:a --one-of b --for 1m --as me", "--one-of"),
            ("take --one-of a:{1..1001} --for 1m --as me", "--one-of 'a:{1..1001}': more than 1000 keys"),
            ("take --one-of a:{a..c} --for 1m --as me", "--one-of 'a:{a..c}': a range has two whole numbers"),
            ("take --one-of  --for 1m --as me", "--one-of '': the key is empty"),
            ("take --one-of a --why b --for 1m --as me", "--one-of: excludes --why and --meta"),
            ("take --one-of a --meta b=c --for 1m --as me", "--one-of: excludes --why and --meta"),
            ("take lock:a lock:b --for 1m --as me", "lock:b"),
            ("take lock:a --for 1m --as me --shared --permits 1 --of 2", "--permits"),
            ("take lock:a --for 1m --as me --permits 1", "--of"),
            ("take lock:a --for 1m --as me --meta noise", "FIELD=VALUE"),
            (
                "take lock:a --for 1m --as me --why a --meta reason=b",
                "--why: is the field 'reason' of --meta",
            ),
            ("renew lock:a", "--as"),
            ("renew lock:a --as me --token 0", "0 is not in"),
            ("renew lock:a --as me --token of-another-server", "invalid digit"),
            ("release lock:a --as me --token -1", "-1"),
            ("mine", "--as"),
        ] {
            let (code, said, refused) = asked(&server, words);
            assert_eq!(
                (code, said.as_str(), refused.lines().count()),
                (Some(64), "", 1),
                "{words}: {refused}"
            );
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(server.ask("DBSIZE"), ":0\r\n");
        assert_eq!(at("http://localhost", "take lock:a --for 1m --as me").0, Some(64));
    }

    #[test]
    fn without_a_server_the_exit_code_is_69() {
        let server = server();
        let url = server.url();
        server.kill();
        for words in
            ["take lock:a --for 1m --as me", "renew lock:a --as me", "release lock:a --as me", "mine --as me"]
        {
            let (code, said, refused) = at(&url, words);
            assert_eq!(
                (code, said.as_str(), refused.lines().count()),
                (Some(69), "", 1),
                "{words}: {refused}"
            );
        }
    }
}

mod loss {
    use super::*;

    #[test]
    fn a_lease_that_has_ended_is_told_to_who_renews_or_releases() {
        let server = server();
        done(&server, "take lock:a --for 30m --as job-1");
        server.pass(30 * MINUTE + 1);
        let (code, said, lost) = asked(&server, "renew lock:a --as job-1");
        assert_eq!((code, said.as_str()), (Some(76), ""), "{lost}");
        for part in [
            "redlatch: not renewed: job-1 does not hold lock:a\n",
            "\n  free: nobody holds it\n",
            "\n  lost: the lease of 30 min 0 s ended at ",
            "before your LOCK.EXTEND",
        ] {
            assert!(lost.contains(part), "{part:?}: {lost}");
        }
        assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n", "it is not taken anew");
        done(&server, "take lock:a --for 30m --as job-2");
        let (code, _, lost) = asked(&server, "release lock:a --as job-1");
        assert_eq!(code, Some(76), "{lost}");
        assert!(lost.contains("not released: job-1 does not hold lock:a"), "{lost}");
        assert!(lost.contains("held by job-2") && lost.contains("next holder job-2"), "{lost}");
        assert_eq!(left(&server), 30 * 60_000, "the lock of the other stays as it is");
    }

    #[test]
    fn an_old_token_neither_renews_nor_releases_a_later_hold_of_the_owner() {
        let server = server();
        done(&server, "take lock:a --for 1m --as job-1");
        done(&server, "release lock:a --as job-1");
        assert_eq!(done(&server, "take lock:a --for 1m --as job-1"), "2 job-1\n");
        server.pass(MINUTE / 2);
        for words in ["renew lock:a --as job-1 --for 1h --token 1", "release lock:a --as job-1 --token 1"] {
            let (code, said, refused) = asked(&server, words);
            assert_eq!((code, said.as_str()), (Some(76), ""), "{refused}");
            assert!(refused.contains("job-1 does not hold lock:a with the token 1\n"), "{refused}");
            assert_eq!(left(&server), 30_000);
        }
        assert_eq!(done(&server, "renew lock:a --as job-1 --token 2"), "2 job-1\n");
        assert_eq!(left(&server), 60_000);
        assert_eq!(done(&server, "release lock:a --as job-1 --token 2"), "lock:a is released\n");
    }

    #[test]
    fn a_lock_without_a_lease_is_renewed_with_a_length_only() {
        let server = server();
        server.ask("SET lock:a me NX");
        let (code, _, said) = asked(&server, "renew lock:a --as me");
        assert!(code == Some(64) && said.contains("the lock has no lease"), "{said}");
        assert_eq!(left(&server), -1);
        done(&server, "renew lock:a --as me --for 1m");
        assert_eq!(left(&server), 60_000);
    }
}

mod waiting {
    use super::*;

    /// A `take` that waits, and told its place.
    struct Waits(Child, BufReader<ChildStderr>);

    impl Waits {
        fn start(server: &Running, words: &str) -> Self {
            let mut command = redlatch();
            command.args(words.split(' ')).args(["--url", &server.url()]);
            let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let said = BufReader::new(process.stderr.take().unwrap());
            Self(process, said)
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.1.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        }

        fn end(self) -> (Option<i32>, String) {
            let Output { status, stdout, .. } = self.0.wait_with_output().unwrap();
            (status.code(), String::from_utf8(stdout).unwrap())
        }
    }

    #[test]
    fn who_waits_is_told_its_place_and_gets_the_lock_in_its_turn() {
        let server = server();
        done(&server, "take lock:a --for 1h --as a --why tests");
        let mut first = Waits::start(&server, "take lock:a --for 1h --wait 1h --as b");
        assert_eq!(first.line(), "redlatch: waiting for lock:a, at place 1 of its queue");
        let mut second = Waits::start(&server, "take lock:a --for 1h --wait 1h --as c --json");
        assert_eq!(second.line(), "redlatch: waiting for lock:a, at place 2 of its queue");
        let told = [second.line(), second.line(), second.line()];
        assert_eq!(told, ["  key:    lock:a", "  holder: a", "  reason: tests"]);
        let (code, _, refused) = asked(&server, "take lock:a --for 1h --as d");
        assert!(code == Some(75) && refused.contains("queue:  2 waiting"), "{refused}");
        done(&server, "release lock:a --as a");
        assert_eq!(first.end(), (Some(0), "2 b\n".to_owned()));
        done(&server, "release lock:a --as b");
        let (code, said) = second.end();
        assert_eq!((code, &json(&said)["token"]), (Some(0), &3.into()));
    }

    #[test]
    fn a_wait_for_one_of_several_gets_the_first_that_is_free() {
        let server = server();
        done(&server, "take lock:a --for 1h --as a");
        done(&server, "take lock:b --for 1h --as b");
        let mut waits = Waits::start(&server, "take --one-of lock:{a,b} --for 1h --wait 1h --as c");
        assert_eq!(waits.line(), "redlatch: waiting for one of 2 locks");
        assert_eq!(waits.line(), "  key:    lock:a");
        done(&server, "release lock:b --as b");
        assert_eq!(waits.end(), (Some(0), "3 c lock:b\n".to_owned()));
    }

    #[test]
    fn a_wait_that_has_ended_is_refused_with_the_holder() {
        let server = server();
        done(&server, "take lock:a --for 30m --as a");
        let mut waits = Waits::start(&server, "take lock:a --for 1h --wait 1h --as b");
        assert_eq!(waits.line(), "redlatch: waiting for lock:a, at place 1 of its queue");
        server.pass(31 * MINUTE);
        assert_eq!(waits.end(), (Some(0), "2 b\n".to_owned()), "the lease has ended before");
        let mut waits = Waits::start(&server, "take lock:a --for 1h --wait 30m --as c");
        assert_eq!(waits.line(), "redlatch: waiting for lock:a, at place 1 of its queue");
        server.pass(30 * MINUTE + 1);
        let mut refused = String::new();
        waits.1.read_to_string(&mut refused).unwrap();
        assert!(refused.contains("redlatch: not taken: lock:a is held\n"), "{refused}");
        assert!(refused.contains("  holder: b\n"), "{refused}");
        assert_eq!(waits.end(), (Some(75), String::new()));
    }

    #[test]
    fn contenders_hold_the_lock_one_at_a_time_and_their_tokens_rise() {
        let server = Running::start(redlatch().args(["--port", "auto"]));
        contend(CONTENDERS, TURNS, |contender, grants| {
            for turn in 0..TURNS {
                let owner = format!("{contender}-{turn}");
                let (code, said, warned) =
                    asked(&server, &format!("take lock:a --for 1h --wait 1h --as {owner}"));
                assert_eq!(code, Some(0), "{warned}");
                let token = grants.hold(|| {
                    let (token, name) = said.trim_end().split_once(' ').unwrap();
                    assert_eq!(name, owner);
                    token.parse().unwrap()
                });
                done(&server, &format!("release lock:a --as {owner} --token {token}"));
            }
        });
    }

    const CONTENDERS: usize = 50;
    const TURNS: usize = 2;
}

mod other_servers {
    use super::*;

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn a_plain_redis_serves_exclusive_locks_without_a_token_and_refuses_the_rest() {
        let real = RealServer::start("redis");
        let ask = |words: &str| at(&real.url(), words);
        for _ in 0..2 {
            let (code, said, warned) = ask("take lock:a --for 1h --as job-1");
            assert_eq!((code, said.as_str()), (Some(0), "- job-1\n"), "{warned}");
            assert!(warned.contains("no LOCK commands"), "{warned}");
        }
        let (code, _, refused) = ask("take lock:a --for 1h --as job-2");
        assert!(code == Some(75) && refused.contains("holder: job-1"), "{refused}");
        assert_eq!(ask("renew lock:a --as job-1 --for 2h").1, "- job-1\n");
        assert_eq!(ask("renew lock:a --as job-2 --for 2h").0, Some(76));
        for (words, code) in [
            ("renew lock:a --as job-1", 64),
            ("renew lock:a --as job-1 --for 1h --token 7", 64),
            ("release lock:a --as job-1 --token 7", 64),
            ("take lock:b --for 1h --as job-1 --shared", 64),
            ("take --one-of lock:{b,c} --for 1h --as job-1", 64),
            ("mine --as job-1", 64),
        ] {
            let (got, said, refused) = ask(words);
            assert_eq!(
                (got, said.as_str(), refused.lines().count()),
                (Some(code), "", 1),
                "{words}: {refused}"
            );
            assert!(refused.contains("takes a server with LOCK commands"), "{refused}");
        }
        assert_eq!(ask("release lock:a --as job-1").0, Some(0));
        assert_eq!(ask("release lock:a --as job-1").0, Some(76));
    }
}
