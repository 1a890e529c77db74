//! `redlatch load`: what it does to servers, what it measures, and what it says.
//!
//! Belongs here  dialects against servers, the checks that must find a broken lock, the report, signals, losses, bad options.
//! Time          no sleep: a load ends by its count, or by a signal after something has happened.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redlatch::Server;
use redlatch::lock::Trust;
use redlatch_cli::load::{self, Dialect, Failure, Hold, Keys, Live, Node, Plan, Report, Times};
use serde_json::Value;

use crate::locks::mutex::broken::{Broken, Fault};
use crate::support::binary::{self, Directory, Running, ask, ended, redlatch};
use crate::support::real::RealServer;
use crate::support::waits::wait_until;

fn plan(urls: &[&str], dialect: Dialect) -> Plan {
    let nodes = urls.iter().map(|url| Node::new(url, Trust::default()).unwrap()).collect();
    Plan {
        dialect,
        clients: 8,
        keys: Keys::parse("zipf:1.1:4").unwrap(),
        hold: Hold::parse("uniform:0us:500us").unwrap(),
        poll: Duration::from_millis(1),
        duration: Duration::from_secs(60),
        count: Some(200),
        seed: 7,
        ..Plan::new(nodes)
    }
}

fn run(plan: Plan) -> Report {
    load::run(plan, &Arc::new(Live::default()), || {}).unwrap()
}

/// What must be true of a load on servers that work.
fn assert_sound(report: &Report, count: u64) {
    let json = report.json();
    let number = |name: &str| json[name].as_u64().unwrap();
    assert_eq!(report.errors().collect::<Vec<_>>(), [], "{json}");
    for (name, expected) in [
        ("acquired", count),
        ("released", count),
        ("overlaps", 0),
        ("lease_outlived", 0),
        ("lost_replies", 0),
        ("given_up", 0),
        ("unfinished", 0),
        ("connections_lost", 0),
    ] {
        assert_eq!(number(name), expected, "{name}: {json}");
    }
    assert!(number("requests") >= 2 * count && number("attempts") >= count, "{json}");
    assert_eq!(report.times(Times::Acquire).len(), count);
    assert_eq!(report.times(Times::Release).len(), count);
    assert!(report.times(Times::Wait).len() >= report.times(Times::HandOver).len());
    assert!(!report.times(Times::HandOver).is_empty(), "8 clients on 4 locks meet: {json}");
    let fairness = json["fairness"].as_f64().unwrap();
    assert!(fairness > 1.0 / 8.0 && fairness <= 1.0, "{fairness}");
    let seconds: u64 = json["acquired_in_second"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!(seconds, count);
}

/// `redlatch load ARGUMENTS`.
fn command(arguments: &[&str]) -> std::process::Command {
    let mut command = redlatch();
    command.arg("load").args(arguments);
    command
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    ended(command(arguments))
}

mod dialects {
    use super::*;

    #[test]
    fn each_takes_and_releases_locks_and_leaves_nothing() {
        for dialect in Dialect::ALL {
            let server = Server::builder().start_blocking().unwrap();
            let report = run(plan(&[&server.url()], dialect));
            assert_sound(&report, 200);
            assert_eq!(server.keys().len(), 0, "{dialect:?}");
        }
    }

    #[test]
    fn redlock_takes_a_majority_of_three_nodes_also_when_one_is_away() {
        let mut servers: Vec<Server> = (0..3).map(|_| Server::builder().start_blocking().unwrap()).collect();
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        assert_sound(&run(plan(&urls, Dialect::Redlock)), 200);
        for server in &servers {
            assert_eq!(server.keys().len(), 0);
        }
        drop(servers.pop());
        let report = run(plan(&urls, Dialect::Redlock));
        assert_eq!((report.acquired(), report.overlaps()), (200, 0));
        drop(servers.pop());
        let failure = load::run(plan(&urls, Dialect::Redlock), &Arc::new(Live::default()), || {});
        assert!(matches!(failure, Err(Failure::NoServer(_))), "one of three is no majority");
    }

    #[test]
    fn several_threads_share_clients_keys_and_figures() {
        let server = Server::builder().start_blocking().unwrap();
        let report = run(Plan { threads: 3, ..plan(&[&server.url()], Dialect::Native) });
        assert_sound(&report, 200);
    }

    #[test]
    fn a_herd_has_the_lock_once_each() {
        let server = Server::builder().start_blocking().unwrap();
        let one = Keys::parse("lock:a").unwrap();
        let plan = plan(&[&server.url()], Dialect::Native);
        let report = run(Plan { count: None, count_each: Some(1), keys: one, ..plan });
        let json = report.json();
        assert_eq!((report.acquired(), json["fairness"].as_f64()), (8, Some(1.0)));
        assert_eq!(report.times(Times::HandOver).len(), 7);
    }

    #[test]
    fn a_wait_that_ends_is_given_up_and_a_hold_beyond_the_lease_is_found() {
        let server = Server::builder().start_blocking().unwrap();
        server.keys().set("lock:a", "another", None);
        let plan = plan(&[&server.url()], Dialect::String);
        let keys = Keys::parse("lock:a").unwrap();
        for dialect in [Dialect::String, Dialect::Native] {
            let wait = Some(Duration::from_millis(5));
            let report = run(Plan { dialect, wait, keys: keys.clone(), count: Some(10), ..plan.clone() });
            let json = report.json();
            assert_eq!((report.acquired(), json["given_up"].as_u64()), (0, Some(10)), "{json}");
            assert!(json["refused"].as_u64() >= Some(10));
            assert_eq!(json["acquire_us"]["p99"], Value::Null);
        }
        let hold = Hold::parse("const:40ms").unwrap();
        let lease = Duration::from_millis(10);
        let report = run(Plan { hold, lease, count: Some(5), clients: 1, ..plan });
        assert_eq!((report.json()["lease_outlived"].as_u64(), report.overlaps()), (Some(5), 0));
    }

    #[test]
    fn an_open_loop_begins_at_its_rate() {
        let server = Server::builder().start_blocking().unwrap();
        let report = run(Plan { rate: Some(1_000.0), ..plan(&[&server.url()], Dialect::Native) });
        let json = report.json();
        assert_eq!(report.acquired(), 200);
        assert!(json["elapsed_ms"].as_f64() >= Some(199.0), "the last one begins after 199 ms: {json}");
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn a_real_redis_serves_all_but_the_native_one() {
        for dialect in Dialect::ALL {
            let real = RealServer::start("redis");
            let loaded = load::run(plan(&[&real.url()], dialect), &Arc::new(Live::default()), || {});
            match loaded {
                Ok(report) => {
                    assert_sound(&report, 200);
                    assert!(report.json()["server"].as_str().unwrap().starts_with("redis "));
                }
                Err(failure) => {
                    let expected =
                        matches!(&failure, Failure::Misfit(text) if text.contains("LOCK commands"));
                    assert!(dialect == Dialect::Native && expected, "{failure:?}");
                }
            }
        }
    }
}

mod broken_locks {
    use super::*;

    #[test]
    fn two_owners_at_once_are_found_and_change_the_exit_code() {
        for (fault, dialect, found) in [
            (Fault::SaysYes, "string", "overlaps_by_time"),
            (Fault::ForgetsNx, "string", "overlaps_by_time"),
            (Fault::DropsKeys, "string", "overlaps_by_time"),
            (Fault::HandsOverEarly, "native", "overlaps_by_time"),
            (Fault::RepeatsTokens, "native", "overlaps_by_token"),
        ] {
            let server = Server::builder().start_blocking().unwrap();
            let broken = Broken::before(server.addr(), fault).unwrap();
            let url = format!("redis://{}", broken.address);
            let (code, report, said) = output(&[
                "--url", &url, "--dialect", dialect, "--clients", "6", "--keys", "lock:a", "--hold", "2ms",
                "--wait", "5ms", "--poll", "1ms", "--count", "300", "--duration", "60s", "--format", "json",
            ]);
            let report: Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{fault:?}: {said}"));
            assert!(report[found].as_u64() > Some(0), "{fault:?}: {report}");
            assert_eq!(code, Some(70), "{fault:?}: {said}");
        }
    }
}

mod reports {
    use super::*;

    /// The names of an object and of the objects in it, as `plan.seed`.
    fn names(value: &Value, head: &str) -> BTreeSet<String> {
        let Value::Object(fields) = value else { return BTreeSet::new() };
        fields
            .iter()
            .flat_map(|(name, value)| {
                let name = format!("{head}{name}");
                let mut inner = names(value, &format!("{name}."));
                inner.insert(name);
                inner
            })
            .collect()
    }

    #[test]
    fn json_has_the_names_that_the_documents_list() {
        let server = Server::builder().start_blocking().unwrap();
        let json = run(plan(&[&server.url()], Dialect::String)).json();
        let documents =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load.md")).unwrap();
        let rows = documents.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        let listed: BTreeSet<&str> = rows.map(|(name, _)| name).collect();
        let is_percentile = |name: &str| name.contains("_us.") && !name.starts_with("acquire_us.");
        for name in names(&json, "").iter().filter(|name| !is_percentile(name)) {
            assert!(listed.contains(name.as_str()), "docs/load.md does not list {name}");
        }
        for name in ["version", "plan.seed", "acquire_us.p99_9", "wait_us", "hand_over_us", "release_us"] {
            assert!(names(&json, "").contains(name), "{name}");
        }
    }

    #[test]
    fn text_json_and_picture_come_from_the_program() {
        let server = Server::builder().start_blocking().unwrap();
        let directory = Directory::new();
        let (url, plot) = (server.url(), directory.path("plot.svg"));
        let common = ["--url", &url, "--count", "50", "--clients", "4", "--seed", "9"];
        let (code, text, said) = output(&[&common[..], &["--plot", &plot]].concat());
        assert_eq!((code, &*said), (Some(0), ""), "{text}");
        for part in
            ["acquired          50 in ", "overlaps          0 by times, 0 by tokens", "p99.9", "hand-over"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_well_formed(&std::fs::read_to_string(&plot).unwrap());
        let (code, json, _) = output(&[&common[..], &["--format", "json"]].concat());
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (code, json["acquired"].as_u64(), json["plan"]["seed"].as_u64()),
            (Some(0), Some(50), Some(9))
        );
        let no_such = directory.path("none/plot.svg");
        let (code, _, said) = output(&[&common[..], &["--plot", &no_such]].concat());
        assert!(code == Some(71) && said.contains("--plot"), "{said}");
    }

    #[test]
    fn a_password_is_in_no_report() {
        let server = Server::builder().set("requirepass", "secret").start_blocking().unwrap();
        let url = format!("redis://:secret@{}", server.addr());
        let (code, text, said) = output(&["--url", &url, "--count", "5", "--format", "json"]);
        assert_eq!((code, &*said), (Some(0), ""));
        assert!(!text.contains("secret"), "{text}");
        let url = format!("redis://:wrong@{}", server.addr());
        let (code, _, said) = output(&["--url", &url, "--count", "5"]);
        assert!(code == Some(77) && said.contains("WRONGPASS") && !said.contains("wrong@"), "{said}");
    }

    /// Every element is closed by its name, in order, and every text is escaped.
    fn assert_well_formed(xml: &str) {
        let mut open = Vec::new();
        for piece in xml.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').unwrap_or_else(|| panic!("<{piece}"));
            assert!(!text.contains('>') && tag.matches('"').count().is_multiple_of(2), "{piece}");
            let name = tag.split_whitespace().next().unwrap();
            match (name.strip_prefix('/'), tag.ends_with('/')) {
                (Some(name), _) => assert_eq!(open.pop(), Some(name)),
                (None, true) => {}
                (None, false) => open.push(name),
            }
        }
        assert_eq!(open, Vec::<&str>::new());
        assert!(xml.starts_with("<svg xmlns="));
    }
}

mod endings {
    use super::*;

    /// A load that runs until it is told to end.
    struct Loading(Child);

    impl Loading {
        fn start(arguments: &[&str]) -> Self {
            let mut command = command(arguments);
            command.args(["--duration", "10m", "--format", "json"]);
            Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        }

        /// Sends the signal; returns the exit code and the report.
        fn end(mut self, signal: &str) -> (Option<i32>, Value) {
            binary::signal(&self.0, signal);
            let mut report = String::new();
            std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut report).unwrap();
            (self.0.wait().unwrap().code(), serde_json::from_str(&report).unwrap())
        }
    }

    impl Drop for Loading {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn ask_on(socket: &str, request: &str) -> String {
        ask(UnixStream::connect(socket).unwrap(), request)
    }

    /// Returns when the load has made many requests.
    fn wait_for_requests(socket: &str) {
        let made = || {
            let info = ask_on(socket, "INFO commandstats");
            let calls = info.lines().filter_map(|line| {
                let (name, figures) = line.split_once(":calls=")?;
                let is_of_load = ["set", "evalsha", "lock.acquire"].map(|name| format!("cmdstat_{name}"));
                is_of_load
                    .contains(&name.to_owned())
                    .then(|| figures.split(',').next()?.parse::<u64>().ok())?
            });
            calls.sum::<u64>()
        };
        wait_until("many requests are made", || made() >= 200);
    }

    fn start(socket: &str) -> Running {
        Running::start(redlatch().args(["--port", "0", "--unixsocket", socket]))
    }

    #[test]
    fn a_signal_gives_the_report_so_far_and_every_lock_is_released() {
        let (directory, dialects) = (Directory::new(), ["string", "native", "redisson"]);
        for (dialect, signal) in dialects.into_iter().zip(["INT", "TERM", "HUP"]) {
            let socket = directory.path("socket");
            let server = start(&socket);
            // A process that was started to ignore SIGINT catches it all the same.
            let hold = ["--hold", "exp:1ms", "--clients", "8", "--keys", "uniform:3", "--dialect", dialect];
            let loading = Loading::start(&[&hold[..], &["--url", &format!("unix://{socket}")]].concat());
            wait_for_requests(&socket);
            let (code, report) = loading.end(signal);
            assert_eq!(code, Some(0), "{report}");
            assert!(report["acquired"].as_u64() >= Some(10), "{report}");
            assert_eq!(report["overlaps"].as_u64(), Some(0));
            let left = ask_on(&socket, "DBSIZE");
            assert_eq!(left, ":0\r\n", "{dialect}: {report}");
            drop(server);
        }
    }

    #[test]
    fn a_lock_that_is_held_is_listed_with_its_kind_and_its_owner() {
        let directory = Directory::new();
        let socket = directory.path("socket");
        let _server = start(&socket);
        let url = format!("unix://{socket}");
        for (dialect, kind) in [("string", "exclusive"), ("redlock", "exclusive"), ("native", "exclusive")] {
            let one =
                ["--url", &url, "--dialect", dialect, "--clients", "1", "--keys", "lock:a", "--hold", "10m"];
            let is_held_at_end = || {
                let loading = Loading::start(&one);
                wait_until("the lock is held", || ask_on(&socket, "EXISTS lock:a") != ":0\r\n");
                let owner = ask_on(&socket, "GET lock:a");
                let owner = owner.lines().last().unwrap().to_owned();
                let listed = ask_on(&socket, "LOCK.LIST");
                let mut words = listed.lines().skip_while(|line| *line != "lock:a");
                assert!(words.clone().any(|word| word == kind), "{dialect}: {listed}");
                assert!(words.any(|word| word == owner), "{dialect}, {owner}: {listed}");
                let (code, report) = loading.end("INT");
                let is_held = report["unfinished"].as_u64() == Some(0);
                assert!(!is_held || (code, report["released"].as_u64()) == (Some(0), Some(1)), "{report}");
                is_held
            };
            // The signal may come before the reply that the lock is taken.
            while !is_held_at_end() {
                ask_on(&socket, "DEL lock:a");
            }
            assert_eq!(ask_on(&socket, "LOCK.LIST").lines().last(), Some("*0"));
        }
    }

    #[test]
    fn a_server_that_goes_is_waited_for_and_counted() {
        let directory = Directory::new();
        let socket = directory.path("socket");
        let server = start(&socket);
        let url = format!("unix://{socket}");
        let loading = Loading::start(&["--url", &url, "--clients", "8", "--keys", "uniform:100"]);
        wait_for_requests(&socket);
        drop(server);
        let _server = start(&socket);
        wait_for_requests(&socket);
        let (code, report) = loading.end("INT");
        assert_eq!((code, report["overlaps"].as_u64()), (Some(0), Some(0)), "{report}");
        for name in ["connections_lost", "reconnects"] {
            assert!(report[name].as_u64() > Some(0), "{name}: {report}");
        }
        assert!(!report["errors"].as_object().unwrap().is_empty(), "{report}");
    }
}

mod options {
    use super::*;

    #[test]
    fn bad_ones_are_refused_in_one_sentence() {
        for (arguments, words) in [
            (&["--keys", "zipf:1:0"][..], "1 to 1000000"),
            (&["--keys", "zipf:x:5"], "zipf:EXPONENT:COUNT"),
            (&["--keys", ""], "1 to 1024 bytes"),
            (&["--hold", "norm:5ms"], "exp:TIME"),
            (&["--hold", "uniform:5ms:1ms"], "must not be above"),
            (&["--lease", "1ms"], "--lease 1ms: must be 10ms"),
            (&["--lease", "soon"], "must be a time"),
            (&["--wait", "25h"], "at most 24h"),
            (&["--poll", "0"], "--poll"),
            (&["--rate", "0"], "in a second"),
            (&["--rate", "5/m"], "5000/s"),
            (&["--duration", "0"], "--duration"),
            (&["--duration", "2d"], "must be a time"),
            (&["--count", "0"], "--count"),
            (&["--clients", "0"], "1 to 20000"),
            (&["--clients", "20001"], "1 to 20000"),
            (&["--clients", "many"], "--clients"),
            (&["--threads", "65"], "1 to 64"),
            (&["--threads", "2", "--clients", "1"], "more than --clients"),
            (&["--dialect", "redlok"], "--dialect"),
            (&["--format", "xml"], "--format"),
            (&["--seed", "-1"], "-1"),
            (&["--nodes", "redis://a,redis://b"], "asks one server"),
            (&["--nodes", "a", "--dialect", "redlock"], "--nodes: URL 'a'"),
            (&["--nodes", "redis://a", "--url", "redis://b"], "--url"),
            (&["--url", "http://a"], "URL 'http://a'"),
            (&["--speed", "5"], "--speed"),
            (&["lock:a"], "lock:a"),
        ] {
            let (code, report, said) = output(arguments);
            assert_eq!((code, &*report), (Some(64), ""), "{arguments:?}: {said}");
            assert!(said.lines().count() == 1 && said.contains(words), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_or_lacks_the_commands_is_named() {
        let directory = Directory::new();
        let url = format!("unix://{}", directory.path("no-socket"));
        let (code, _, said) = output(&["--url", &url]);
        assert!(code == Some(69) && said.contains("no-socket"), "{said}");
    }
}
