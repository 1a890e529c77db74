//! The history of a namespace over real connections: what it keeps, what it finds wrong, and what is made of it.
//!
//! Belongs here  TEST.HISTORY, TEST.CALLS, TEST.CHECK, `redlatch timeline`.
//! Time          is that of a namespace, which stands still until a test moves it.

mod history {
    use redis_protocol::resp2::types::OwnedFrame;
    use redlatch::Server;

    use crate::support::binary;
    use crate::support::waits::wait_until;
    use crate::support::wire::Link;

    fn server() -> Server {
        Server::builder().set("enable-test-commands", "yes").start_blocking().expect("a server starts")
    }

    /// A client of a namespace of this server.
    struct Client(Link);

    impl Client {
        fn of(server: &Server, namespace: &str, name: &str) -> Self {
            let mut client = Self(Link::to(server.addr()).expect("a connection"));
            client.ask(&format!("AUTH namespace:{namespace}"));
            client.ask(&format!("CLIENT SETNAME {name}"));
            client
        }

        fn ask(&mut self, line: &str) -> OwnedFrame {
            self.0.ask_line(line).expect("a reply")
        }

        fn send(&mut self, line: &str) {
            self.0.send(&line.split(' ').collect::<Vec<_>>()).expect("a reply");
        }

        /// The events as texts: `kind name command reply`, without connections and handshakes.
        fn history(&mut self, filter: &str) -> Vec<String> {
            let events = maps(self.ask(&format!("TEST.HISTORY{filter}")));
            let events = events.iter().filter(|event| {
                let command = field(event, "command").unwrap_or_default();
                !["AUTH", "CLIENT SETNAME"].contains(&command.as_str())
                    && field(event, "kind").as_deref() != Some("connect")
            });
            let shown = ["kind", "name", "command", "args", "reply", "token", "holder", "lease", "text"];
            events
                .map(|event| {
                    let texts: Vec<_> = shown.iter().filter_map(|name| field(event, name)).collect();
                    texts.join(" ")
                })
                .collect()
        }
    }

    type Map = Vec<(String, String)>;

    fn text(frame: &OwnedFrame) -> String {
        match frame {
            OwnedFrame::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
            OwnedFrame::BulkString(bytes) | OwnedFrame::SimpleString(bytes) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            OwnedFrame::Error(text) => text.to_string(),
            OwnedFrame::Integer(number) => number.to_string(),
            OwnedFrame::Null => "nil".to_owned(),
        }
    }

    fn maps(frame: OwnedFrame) -> Vec<Map> {
        let OwnedFrame::Array(items) = frame else { panic!("no list: {frame:?}") };
        let map = |item: &OwnedFrame| match item {
            OwnedFrame::Array(words) => {
                words.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
            }
            other => panic!("no map: {other:?}"),
        };
        items.iter().map(map).collect()
    }

    fn field(map: &Map, name: &str) -> Option<String> {
        map.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn everything_that_happens_to_a_lock_is_kept_in_order() {
        let server = server();
        let [mut a, mut b] = ["A", "B"].map(|name| Client::of(&server, "order", name));
        a.ask("TEST.CLOCK FREEZE");
        a.ask("SET lock mine NX PX 30000");
        b.ask("SET lock theirs NX PX 30000");
        a.ask("TEST.CLOCK ADVANCE 20000");
        a.ask("PEXPIRE lock 30000");
        a.ask("TEST.CLOCK ADVANCE 30001");
        b.ask("GET lock");
        let expected = [
            "request A TEST.CLOCK FREEZE ", "request A SET lock,mine,NX,PX,30000", "granted A 1 mine 30000",
            "reply A SET OK", "request B SET lock,theirs,NX,PX,30000", "refused B theirs", "reply B SET nil",
            "request A TEST.CLOCK ADVANCE 20000", "request A PEXPIRE lock,30000", "renewed A 1 mine 30000",
            "reply A PEXPIRE 1", "request A TEST.CLOCK ADVANCE 30001", "expired A 1 mine",
            "request B GET lock", "reply B GET nil",
        ];
        let is_answer = |line: &String| line.starts_with("reply A TEST.CLOCK");
        let seen: Vec<_> = b.history("").into_iter().filter(|line| !is_answer(line)).collect();
        assert_eq!(seen, expected);
        let events = maps(b.ask("TEST.HISTORY KEY lock"));
        let at = |kind: &str| {
            let event = events.iter().find(|event| field(event, "kind").as_deref() == Some(kind));
            field(event.unwrap(), "at").unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(at("renewed") - at("granted"), 20_000);
        assert_eq!(at("expired") - at("renewed"), 30_001);
    }

    #[test]
    fn a_reply_that_comes_late_is_noted_when_it_comes() {
        let server = server();
        let [mut a, mut b] = ["A", "B"].map(|name| Client::of(&server, "late", name));
        a.ask("TEST.CLOCK FREEZE");
        a.ask("LOCK.ACQUIRE lock a LEASE 30000");
        b.send("LOCK.ACQUIRE lock b LEASE 30000 WAIT 60000");
        wait_until("somebody waits", || !text(&a.ask("LOCK.WAITERS lock")).is_empty());
        a.ask("LOCK.RELEASE lock a");
        b.0.next().unwrap();
        let seen = b.history(" COMMAND LOCK.ACQUIRE");
        assert_eq!(
            seen[2..],
            [
                "request B LOCK.ACQUIRE lock,b,LEASE,30000,WAIT,60000",
                "reply B LOCK.ACQUIRE [token, 2, lease, 30000, waited, 0]"
            ]
        );
        let seen = b.history(" KEY lock CLIENT B");
        assert_eq!(seen[1..3], ["waits B b", "granted B 2 b 30000"], "{seen:?}");
        assert_eq!(maps(b.ask("TEST.CHECK")), Vec::<Map>::new());
    }

    #[test]
    fn the_history_has_no_passwords_and_does_not_show_who_looks_at_it() {
        let server = server();
        let mut a = Client::of(&server, "secret", "A");
        a.ask("HELLO 2 AUTH default hidden SETNAME A");
        a.ask("CONFIG SET requirepass hidden");
        a.ask("ACL SETUSER someone >hidden");
        let before = text(&a.ask("TEST.HISTORY"));
        assert!(!before.contains("hidden") && !before.contains("namespace:"), "{before}");
        assert!(before.contains("(redacted)") && before.contains("CONFIG SET"), "{before}");
        a.ask("TEST.CALLS");
        assert_eq!(text(&a.ask("TEST.HISTORY")), before);
    }

    #[test]
    fn events_are_chosen_and_calls_are_counted() {
        let server = server();
        let [mut a, mut b] = ["A", "B"].map(|name| Client::of(&server, "filter", name));
        a.ask("SET x 1");
        a.ask("SET y 1");
        b.ask("GET x");
        b.ask("DEL y x");
        assert_eq!(a.history(" KEY x").len(), 5, "DEL names x, too");
        assert_eq!(a.history(" COMMAND set").len(), 4);
        assert_eq!(a.history(" CLIENT B COMMAND g*"), ["request B GET x", "reply B GET 1"]);
        let first = maps(a.ask("TEST.HISTORY COUNT 3"));
        let id = |event: &Map| field(event, "id").unwrap().parse::<u64>().unwrap();
        let rest = maps(a.ask(&format!("TEST.HISTORY SINCE {} COUNT 1", id(&first[2]))));
        assert_eq!((first.len(), id(&rest[0])), (3, id(&first[2]) + 1));
        assert_eq!(text(&a.ask("TEST.CALLS CLIENT A COMMAND SET")), "SET,2");
        assert_eq!(text(&a.ask("TEST.CALLS KEY x")), "DEL,1,GET,1,SET,1");
        for wrong in
            ["TEST.HISTORY COUNT", "TEST.HISTORY SINCE -1", "TEST.HISTORY WHEN 3", "TEST.CALLS COUNT 3"]
        {
            assert!(matches!(a.ask(wrong), OwnedFrame::Error(_)), "{wrong}");
        }
        assert_eq!(a.history(" KEY x").len(), 5, "a refusal changes nothing");
        let other = &mut Client::of(&server, "filter-2", "C");
        assert_eq!(other.history(""), [""; 0], "another namespace has its own");
    }

    #[test]
    fn what_clients_do_wrong_is_found() {
        let server = server();
        let [mut a, mut b] = ["A", "B"].map(|name| Client::of(&server, "check", name));
        a.ask("TEST.CLOCK FREEZE");
        a.ask("SET lock a NX PX 30000");
        b.ask("DEL lock");
        b.ask("SET lock b NX PX 30000");
        b.ask("TEST.CLOCK ADVANCE 30001");
        b.ask("DELEX lock IFEQ b");
        let findings = maps(b.ask("TEST.CHECK"));
        let rules: Vec<_> = findings.iter().filter_map(|finding| field(finding, "rule")).collect();
        assert_eq!(rules, ["foreign-delete", "blind-delete", "two-holders", "late"]);
        assert_eq!(field(&findings[2], "text").unwrap(), "B gets lock, whose lease A has for 30000 ms more");
        let lines = field(&findings[3], "lines").unwrap();
        assert!(lines.contains("B: DELEX lock IFEQ b"), "{lines}");
    }

    #[test]
    fn a_lock_without_a_lease_that_is_broken_and_granted_anew_has_two_holders() {
        let server = server();
        let [mut a, mut b] = ["A", "B"].map(|name| Client::of(&server, "endless", name));
        a.ask("LOCK.ACQUIRE lock a SESSION");
        b.ask("LOCK.BREAK lock TOKEN 1");
        b.ask("LOCK.ACQUIRE lock b SESSION");
        let findings = maps(b.ask("TEST.CHECK"));
        let texts: Vec<_> = findings.iter().filter_map(|finding| field(finding, "text")).collect();
        assert_eq!(texts, ["B gets lock, which A holds without a lease"]);
    }

    #[test]
    fn a_node_that_loses_its_keys_gives_a_lock_on_several_nodes_a_second_holder() {
        let builder = Server::builder().set("enable-test-commands", "yes").set("nodes", "3");
        let server = builder.start_blocking().unwrap();
        let nodes = |name: &str| -> Vec<Client> {
            let clients = server.node_addrs().into_iter().map(|address| {
                let mut client = Client(Link::to(address).expect("a connection"));
                client.ask("AUTH namespace:redlock");
                client.ask(&format!("CLIENT SETNAME {name}"));
                client
            });
            clients.collect()
        };
        let mut a = nodes("A");
        a[0].ask("TEST.CLOCK FREEZE");
        for node in &mut a[..2] {
            node.ask("SET lock a NX PX 30000");
        }
        a[0].ask("TEST.NODE CRASH 2 LOSE");
        a[0].ask("TEST.NODE START 2");
        let mut b = nodes("B");
        assert_eq!(text(&b[2].ask("SET lock b NX PX 30000")), "OK");
        assert_eq!(maps(a[0].ask("TEST.CHECK")), Vec::<Map>::new(), "one node of three");
        assert_eq!(text(&b[1].ask("SET lock b NX PX 30000")), "OK");
        let findings = maps(a[0].ask("TEST.CHECK"));
        let rules: Vec<_> = findings.iter().filter_map(|finding| field(finding, "rule")).collect();
        assert_eq!(rules, ["two-holders"]);
        let lines = field(&findings[0], "lines").unwrap();
        assert!(lines.contains("B on node 2: holds lock"), "{lines}");
        let drawn = redlatch(&["timeline", &url(&server, "redlock")]).0;
        assert!(
            drawn.contains("node 2: B holds lock") && drawn.contains("-- TEST.NODE CRASH 2 LOSE"),
            "{drawn}"
        );
    }

    /// The output and the exit code of the program.
    fn redlatch(words: &[&str]) -> (String, String, Option<i32>) {
        let out = binary::redlatch().args(words).output().expect("the program runs");
        let text = |bytes| String::from_utf8(bytes).expect("texts");
        (text(out.stdout), text(out.stderr), out.status.code())
    }

    #[test]
    fn a_timeline_fits_a_screen_unless_all_of_it_is_asked_for() {
        let server = server();
        let mut client = Client::of(&server, "long", "A");
        client.ask("TEST.CLOCK FREEZE");
        client.ask("SET lock a NX PX 30000");
        (0..100).for_each(|_| drop(client.ask("SET lock b NX PX 30000")));
        (0..100).for_each(|number| drop(client.ask(&format!("GET key:{number}"))));
        let url = url(&server, "long");
        let screen = redlatch(&["timeline", &url]).0;
        assert!(screen.lines().count() <= 50 && screen.contains("GET key:99"), "{screen}");
        assert!(screen.contains("left out: REDLATCH_TIMELINE=all shows them"), "{screen}");
        assert!(!screen.contains("GET key:10 "), "{screen}");
        let all = redlatch(&["timeline", &url, "--all"]).0;
        assert_eq!((all.matches(" lock b ").count(), all.matches("GET key:").count()), (100, 100), "{all}");
        let mut wanted = binary::redlatch();
        wanted.args(["timeline", &url]).env("REDLATCH_TIMELINE", "all");
        assert_eq!(wanted.output().expect("the program runs").stdout, all.as_bytes());
    }

    #[test]
    fn a_timeline_is_drawn_as_text_and_as_a_page() {
        let server = server();
        let [mut a, mut b] = ["A", "B"].map(|name| Client::of(&server, "drawn", name));
        a.ask("TEST.CLOCK FREEZE");
        a.ask("SET lock a NX PX 30000");
        b.send("LOCK.ACQUIRE lock b LEASE 60000 WAIT 90000");
        wait_until("somebody waits", || !text(&a.ask("LOCK.WAITERS lock")).is_empty());
        a.ask("TEST.CLOCK ADVANCE 30001");
        b.0.next().expect("a reply");
        b.0.ask(&["SET", "bytes", "a \"b\"\n"]).expect("a reply");
        let url = url(&server, "drawn");
        let (out, errors, code) = redlatch(&["timeline", &url]);
        assert_eq!((errors.as_str(), code), ("", Some(0)));
        for line in ["# .  A holds lock, token 1 for 30000 ms", "X :  A the lease of lock has ended, token 1"]
        {
            assert!(out.contains(line), "{line}: {out}");
        }
        let (page, _, code) = redlatch(&["timeline", &url, "--format", "html"]);
        assert!(code == Some(0) && page.starts_with("<!doctype html>") && page.contains("token"), "{page}");
    }

    #[test]
    fn what_cannot_be_drawn_is_said_on_the_error_stream() {
        let silent = Server::builder().start_blocking().unwrap();
        for (words, code, says) in [
            (&["timeline", &silent.url()][..], 64, "--enable-test-commands"),
            (&["timeline", "ftp://x"], 64, "ftp://x"),
            (&["timeline"], 64, "URL"),
            (&["timeline", &silent.url(), "--format", "png"], 64, "png"),
        ] {
            let (out, errors, found) = redlatch(words);
            assert_eq!((out.as_str(), found), ("", Some(code)), "{words:?}: {errors}");
            assert!(errors.contains(says) && errors.lines().count() == 1, "{words:?}: {errors}");
        }
    }

    fn url(server: &Server, namespace: &str) -> String {
        format!("redis://:namespace%3A{namespace}@{}", server.addr())
    }
}
