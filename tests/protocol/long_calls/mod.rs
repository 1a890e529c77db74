//! Scripts, transactions and commands that take long, as other clients see them.
//!
//! Belongs here  calls on the script thread, and that they block no worker: other clients are served, get
//!               BUSY in time, and may kill a script.
//! Time          manual clocks, moved by the test. A script publishes a message when it has begun.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::time::Duration;

use redlatch::Server;
use redlatch::WallTime;
use tokio::io::{AsyncWriteExt, DuplexStream};

use crate::support::stream::StreamClient;

const START: WallTime = WallTime::from_millis(1_700_000_000_000);
/// Longer than the default of `busy-reply-threshold`.
const TOO_LONG: Duration = Duration::from_secs(6);

type Client = StreamClient<DuplexStream>;

impl Client {
    fn of(server: &Server) -> Self {
        Self::new(server.stream())
    }

    /// Kills the running script, once it has begun.
    async fn kill(&mut self) -> String {
        self.kill_by("SCRIPT").await
    }

    /// Kills the running call by SCRIPT KILL or FUNCTION KILL.
    async fn kill_by(&mut self, kind: &str) -> String {
        loop {
            let answer = self.ask(&[kind, "KILL"]).await;
            if !answer.starts_with("-NOTBUSY") {
                return answer;
            }
        }
    }

    /// Sends a script that runs `first` and then loops for ever; returns when it has begun.
    async fn run_for_ever(&mut self, server: &Server, first: &str) {
        let script = format!("{first} {FOR_EVER}");
        self.begin(server, &["EVAL", &script, "1", "k"]).await;
    }

    /// Makes a set of 30,000 members, which is large.
    async fn make_large_set(&mut self) {
        self.make_set("large", 300).await;
    }

    /// Makes a set of this many hundred members.
    async fn make_set(&mut self, name: &str, hundreds: usize) {
        for hundred in 0..hundreds {
            let members: Vec<String> = (0..100).map(|member| format!("member {hundred} {member}")).collect();
            let words: Vec<&str> =
                ["SADD", name].into_iter().chain(members.iter().map(String::as_str)).collect();
            assert_eq!(self.ask(&words).await, ":100");
        }
    }

    /// Sends a request that publishes its beginning; returns when it has begun.
    async fn begin(&mut self, server: &Server, words: &[&str]) {
        let mut listener = Self::of(server);
        assert_eq!(listener.ask(&["SUBSCRIBE", "begun"]).await, "*3");
        self.say(words).await;
        while listener.line().await != "yes" {}
    }

    /// Sends a request, and moves the clock until it is answered.
    async fn ask_in_time(&mut self, server: &Server, words: &[&str]) -> String {
        self.say(words).await;
        let clock = server.clock();
        let answer = self.line();
        tokio::pin!(answer);
        // The connection may look at the clock before the script has begun.
        loop {
            tokio::select! {
                answer = &mut answer => break answer,
                () = clock.advance(TOO_LONG) => {}
            }
        }
    }

    /// A key in another shard than those that a slow script holds.
    async fn free_key(&mut self) -> String {
        for n in 0.. {
            let key = format!("other {n}");
            if self.ask(&["EXISTS", &key]).await == ":0" {
                return key;
            }
        }
        unreachable!("a shard is free")
    }

    /// The reply of FUNCTION STATS about the running function, up to its duration.
    async fn running_function(&mut self) -> Vec<String> {
        self.say(&["FUNCTION", "STATS"]).await;
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != "duration_ms") {
            lines.push(self.line().await);
        }
        lines.retain(|line| !line.starts_with(['$', '*']));
        // After the duration: `engines`, the one engine, its libraries and functions.
        for _ in 0..13 {
            self.line().await;
        }
        lines
    }

    /// Loads two functions that never end: one only publishes, the other writes first.
    async fn load_functions(&mut self) {
        let code = format!(
            "#!lua name=ever\nredis.register_function('speaks', function() {FOR_EVER} end)\n\
             redis.register_function('writes', function(keys) redis.call('set', keys[1], 'w') {FOR_EVER} end)"
        );
        assert_eq!(self.ask(&["FUNCTION", "LOAD", &code]).await, "$4");
        assert_eq!(self.line().await, "ever");
    }
}

const FOR_EVER: &str = "redis.call('publish', 'begun', 'yes') while true do end";
const BUSY_SCRIPT: &str =
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str =
    "-BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
const NONE_RUNS: &str = "-NOTBUSY No scripts in execution right now.";

/// Reads of a large set that together take long.
const OFTEN: usize = 1000;

/// All connections on one thread: a request that blocks it blocks them all.
async fn server() -> Server {
    Server::builder().manual_clock(START).start().await.unwrap()
}

#[tokio::test]
async fn client_reply_skip_is_about_a_script_that_goes_to_the_script_thread() {
    let server = server().await;
    let mut client = Client::of(&server);
    client.say(&["CLIENT", "REPLY", "SKIP"]).await;
    client.say(&["EVAL", INTERPRETED, "1", "n"]).await;
    assert_eq!(client.ask(&["PING"]).await, "+PONG");
}

#[tokio::test]
async fn a_client_that_sends_no_more_is_answered_behind_a_script() {
    let server = server().await;
    let (mut client, mut runner, mut other) = (Client::of(&server), Client::of(&server), Client::of(&server));
    client.say(&["EVAL", INTERPRETED, "1", "n"]).await;
    client.say(&["INCR", "n"]).await;
    client.0.get_mut().shutdown().await.unwrap();
    assert_eq!((client.line().await, client.line().await), (":1".to_owned(), ":2".to_owned()));
    assert!(client.has_ended().await);
    // A request that the script of another client holds up.
    runner.run_for_ever(&server, "").await;
    let mut client = Client::of(&server);
    client.say(&["INCR", "n"]).await;
    client.0.get_mut().shutdown().await.unwrap();
    assert!(client.has_no_answer().await);
    assert_eq!(other.kill().await, "+OK");
    assert_eq!(client.line().await, ":3");
    assert!(client.has_ended().await);
}

#[tokio::test]
async fn a_script_that_never_ends_is_ended_by_a_neighbour() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    assert_eq!(other.ask(&["SET", "k", "v"]).await, "+OK");
    runner.run_for_ever(&server, "").await;
    assert_eq!(other.kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"), "it is told why");
    assert_eq!(other.ask(&["SCRIPT", "KILL"]).await, NONE_RUNS);
    assert_eq!(runner.ask(&["SET", "k", "w"]).await, "+OK");
}

#[tokio::test]
async fn a_command_on_locked_keys_waits_and_then_gets_busy() {
    let server = server().await;
    let (mut runner, mut reader, mut other) = (Client::of(&server), Client::of(&server), Client::of(&server));
    runner.run_for_ever(&server, "").await;
    assert_eq!(reader.ask_in_time(&server, &["GET", "k"]).await, BUSY_SCRIPT);
    assert_eq!(other.ask(&["PING"]).await, "+PONG");
    assert_eq!(other.ask(&["EVAL", INTERPRETED, "1", "n"]).await, BUSY_SCRIPT, "it needs the script thread");
    assert_eq!(other.ask(&["WATCH", "k"]).await, BUSY_SCRIPT, "its shard is locked by the script");
    for command in ["MULTI", "DISCARD"] {
        assert_eq!(other.ask(&[command]).await, "+OK");
    }
    assert_eq!(other.ask(&["MULTI"]).await, "+OK");
    assert_eq!(other.ask(&["SET", "k", "v"]).await, "+QUEUED");
    let aborted = format!("-EXECABORT Transaction discarded because of: {}", &BUSY_SCRIPT[1..]);
    assert_eq!(other.ask(&["EXEC"]).await, aborted);
    assert_eq!(other.kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"));
    assert_eq!(other.ask(&["EVAL", "return 1", "0"]).await, ":1");
}

#[tokio::test]
async fn requests_that_only_look_are_answered_while_a_script_holds_every_key() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    assert_eq!(other.ask(&["SET", "k", "v", "NX", "PX", "600000"]).await, "+OK");
    assert_eq!(runner.ask(&["CLIENT", "SETNAME", "author"]).await, "+OK");
    runner.run_for_ever(&server, "redis.call('keys', '*')").await;
    assert_eq!(other.ask_in_time(&server, &["GET", "k"]).await, BUSY_SCRIPT);

    for (words, answer) in [
        (&["PING"][..], "+PONG"),
        (&["CONFIG", "GET", "maxclients"], "*2"),
        (&["SLOWLOG", "GET"], "*0"),
        (&["COMMAND", "COUNT"], ""),
        (&["HELLO", "2"], "*14"),
        (&["ACL", "WHOAMI"], "$7"),
        (&["CLIENT", "KILL", "ID", "999"], ":0"),
        (&["MEMORY", "STATS"], "*44"),
        (&["SUBSCRIBE", "news"], "*3"),
    ] {
        let mut client = Client::of(&server);
        let found = client.ask(words).await;
        assert!(found == answer || answer.is_empty() && found.starts_with(':'), "{words:?}: {found}");
    }
    let mut info = String::new();
    // The script looks at the clock now and then.
    while !info.contains("slow_scripts:1\r\n") {
        info = other.text(&["INFO", "everything"]).await;
    }
    for line in ["locks_held:1\r\n", "db0:keys=1,expires=1,avg_ttl=0\r\n", ",name=author\r\n"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    let seconds = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.parse().unwrap()
    };
    assert!(seconds("running_script_seconds") >= 5.0 && seconds("counters_age_seconds") >= 5.0, "{info}");
    let list = other.text(&["CLIENT", "LIST"]).await;
    let line = list.lines().find(|line| line.contains(" name=author ")).unwrap();
    assert!(
        line.contains(" cmd=eval ") && line.contains(" script=") && line.contains(" script-age="),
        "{line}"
    );
    assert_eq!(list.matches(" script=").count(), 1, "{list}");
    assert_eq!(other.ask(&["LOCK.LIST"]).await, BUSY_SCRIPT, "it shows keys");
    assert_eq!(other.ask(&["DBSIZE"]).await, BUSY_SCRIPT);

    assert_eq!(other.kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"));
    let info = other.text(&["INFO", "everything"]).await;
    for line in ["running_script_seconds:0.000\r\n", "running_script:\r\n", "counters_age_seconds:0.000\r\n"]
    {
        assert!(info.contains(line), "{line} in {info}");
    }
}

#[tokio::test]
async fn a_script_holds_up_the_shards_of_its_keys_alone() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    other.load_functions().await;
    let looping = format!("redis.call('get', KEYS[1]) {FOR_EVER}");
    for (words, kind) in [
        (&["EVAL", &looping, "1", "k"][..], "SCRIPT"),
        (&["FCALL", "speaks", "1", "k"], "FUNCTION"),
        (&["EXEC"], "SCRIPT"),
    ] {
        if words == ["EXEC"] {
            assert_eq!(runner.ask(&["MULTI"]).await, "+OK");
            assert_eq!(runner.ask(&["SET", "k", "v"]).await, "+QUEUED");
            assert_eq!(runner.ask(&["EVAL", &looping, "1", "k"]).await, "+QUEUED");
        }
        runner.begin(&server, words).await;
        let busy = if kind == "SCRIPT" { BUSY_SCRIPT } else { BUSY_FUNCTION };
        assert_eq!(
            Client::of(&server).ask_in_time(&server, &["SET", "k", "w", "NX", "PX", "1000"]).await,
            busy
        );
        let key = other.free_key().await;
        assert_eq!(other.ask(&["SET", &key, "v", "NX", "PX", "1000"]).await, "+OK", "{words:?}");
        assert_eq!(other.ask(&["EVAL", RELEASE, "1", &key, "v"]).await, ":1");
        // Its lease ends on time, too.
        assert_eq!(other.ask(&["SET", &key, "v", "NX", "PX", "1000"]).await, "+OK");
        server.clock().advance(Duration::from_millis(1_001)).await;
        assert!(other.text(&["INFO", "keyspace"]).await.lines().all(|line| !line.contains("expires=1")));
        assert_eq!(other.kill_by(kind).await, "+OK");
        if words == ["EXEC"] {
            assert_eq!((runner.line().await, runner.line().await), ("*2".to_owned(), "+OK".to_owned()));
        }
        assert!(runner.line().await.contains("Script killed by user"));
    }
    server.assert_laws();
}

#[tokio::test]
async fn a_script_that_has_only_read_starts_again_if_it_asks_for_keys_that_it_does_not_declare() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    assert_eq!(other.ask(&["MSET", "k", "1", "a", "2", "b", "3", "c", "4"]).await, "+OK");
    let mut listener = Client::of(&server);
    assert_eq!(listener.ask(&["SUBSCRIBE", "news"]).await, "*3");
    listener.lines(5).await;
    let read = "local t = {n = 0} redis.call('select', 0) \
                for i, k in ipairs({KEYS[1], 'a', 'b', 'c'}) do t.n = t.n + redis.call('get', k) end";
    // It also ends if it catches every error.
    let caught = format!(
        "for i = 1, 3 do pcall(function() {read} redis.call('publish', 'news', t.n) end) end return 7"
    );
    let plain =
        format!("{read} redis.call('publish', 'news', t.n) redis.call('incr', 'sum' .. t.n) return t.n");
    for (script, answer, messages) in [(&plain, ":10", 1), (&plain, ":10", 1), (&caught, ":7", 3)] {
        assert_eq!(runner.ask(&["EVAL", script, "1", "k"]).await, answer);
        for _ in 0..messages {
            assert_eq!(listener.lines(7).await[6], "10");
        }
    }
    assert!(listener.has_no_answer().await);
    assert_eq!(server.keys().get("sum10").as_deref(), Some(&b"2"[..]));
    server.assert_laws();
}

#[tokio::test]
async fn a_script_that_has_written_gets_the_keys_that_it_does_not_declare() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    let code = "#!lua name=all\nredis.register_function('all', function(keys) \
                for i = 1, 50 do redis.call('incr', keys[1] .. i) end return redis.call('dbsize') end)";
    assert_eq!(other.ask(&["FUNCTION", "LOAD", code]).await, "$3");
    assert_eq!(other.line().await, "all");
    let all = "local t = {} for i = 1, 50 do t.n = redis.call('incr', KEYS[1] .. i) end return redis.call('dbsize')";
    // The native script makes one key more.
    for keys in [":50", ":51"] {
        assert_eq!(runner.ask(&["EVAL", all, "1", "k"]).await, keys);
        assert_eq!(runner.ask(&["FCALL", "all", "1", "k"]).await, keys);
        assert_eq!(runner.ask(&["MULTI"]).await, "+OK");
        let queued = [&["SET", "k1", "0"][..], &["EVAL", all, "1", "k"], &["EVAL", NATIVE_ALL, "1", "k"]];
        for words in queued {
            assert_eq!(runner.ask(words).await, "+QUEUED");
        }
        assert_eq!(runner.ask(&["EXEC"]).await, "*3");
        for answer in ["+OK", keys, ":2"] {
            assert_eq!(runner.line().await, answer);
        }
        assert_eq!(other.ask(&["DEL", "k1"]).await, ":1");
    }
    assert_eq!(server.keys().get("k50").as_deref(), Some(&b"6"[..]));
    server.assert_laws();
}

#[tokio::test]
async fn a_script_takes_further_keys_although_others_use_them_all_the_time() {
    let server = Server::builder().set("threads", "2").start().await.unwrap();
    let (mut runner, mut others) = (Client::of(&server), Vec::new());
    for n in 0..4_usize {
        let mut other = Client::of(&server);
        others.push(tokio::spawn(async move {
            let keys = [format!("k{n}"), format!("k{}", n + 10), format!("k{}", n + 20)];
            for _ in 0..300 {
                assert_eq!(other.ask(&["MSET", &keys[2], "1", &keys[0], "1", &keys[1], "1"]).await, "+OK");
            }
        }));
    }
    for round in 0..100 {
        // Another text each time: none is known to ask for further keys.
        let script = format!(
            "local t = {{n = {round}}} for i = 0, 29 do redis.call('set', KEYS[1] .. i, t.n) end \
             for i = 0, 29 do if redis.call('get', 'k' .. i) ~= tostring(t.n) then return i end end return -1"
        );
        assert_eq!(runner.ask(&["EVAL", &script, "1", "k"]).await, ":-1");
    }
    for other in others {
        other.await.unwrap();
    }
    server.assert_laws();
}

#[tokio::test]
async fn a_script_that_has_written_is_not_ended_but_with_the_server() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    runner.run_for_ever(&server, "redis.call('set', KEYS[1], 'w')").await;
    assert!(other.kill().await.starts_with("-UNKILLABLE"));
    assert_eq!(other.ask(&["SUBSCRIBE", "c"]).await, "*3", "who needs no key is served");
    server.stop();
    server.stopped().await;
    // Its thread ends: the runtime of this test would wait for it.
    drop(runner.line().await);
}

#[tokio::test]
async fn a_function_is_told_of_and_ended_as_a_function() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    other.load_functions().await;
    for kind in ["SCRIPT", "FUNCTION"] {
        assert_eq!(other.ask(&[kind, "KILL"]).await, NONE_RUNS);
    }
    runner.begin(&server, &["FCALL", "speaks", "0", "word"]).await;
    assert_eq!(other.kill_by("SCRIPT").await, BUSY_FUNCTION, "it is no script");
    let told = other.running_function().await;
    let expected =
        ["running_script", "name", "speaks", "command", "FCALL", "speaks", "0", "word", "duration_ms"];
    assert_eq!(told, expected);
    assert_eq!(other.kill_by("FUNCTION").await, "+OK");
    // Redis calls it a script here, too.
    let killed = "-ERR Script killed by user with SCRIPT KILL... script: speaks, on @user_function:2.";
    assert_eq!(runner.line().await, killed);
    for kind in ["SCRIPT", "FUNCTION"] {
        assert_eq!(other.ask(&[kind, "KILL"]).await, NONE_RUNS);
    }
    assert_eq!(runner.ask(&["SET", "k", "v"]).await, "+OK");
}

#[tokio::test]
async fn of_a_script_function_stats_has_nothing_to_tell_and_function_kill_does_not_end_it() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    runner.run_for_ever(&server, "").await;
    assert_eq!(other.kill_by("FUNCTION").await, BUSY_SCRIPT);
    assert_eq!(other.ask(&["FUNCTION", "STATS"]).await, BUSY_SCRIPT);
    assert_eq!(other.kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"));
}

#[tokio::test]
async fn a_function_in_a_transaction_is_ended_and_the_transaction_goes_on() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    other.load_functions().await;
    assert_eq!(runner.ask(&["MULTI"]).await, "+OK");
    assert_eq!(runner.ask(&["FCALL", "speaks", "0"]).await, "+QUEUED");
    assert_eq!(runner.ask(&["SET", "k", "v"]).await, "+QUEUED");
    runner.begin(&server, &["EXEC"]).await;
    assert_eq!(other.kill_by("FUNCTION").await, "+OK");
    assert_eq!(runner.line().await, "*2");
    assert!(runner.line().await.contains("Script killed by user"));
    assert_eq!(runner.line().await, "+OK");
}

#[tokio::test]
async fn a_function_that_has_written_is_ended_by_neither_kill() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    other.load_functions().await;
    runner.begin(&server, &["FCALL", "writes", "1", "k"]).await;
    let unkillable = "-UNKILLABLE Sorry the script already executed write commands against the dataset.";
    assert!(other.kill_by("SCRIPT").await.starts_with(unkillable), "that it has written is said first");
    assert!(other.kill_by("FUNCTION").await.starts_with(unkillable));
    assert_eq!(other.running_function().await[2], "writes");
    // A user that may not use its keys is told neither these nor its arguments.
    let mut limited = Client::of(&server);
    assert_eq!(other.ask(&["ACL", "SETUSER", "team", "on", "nopass", "~team:*", "+@all"]).await, "+OK");
    assert_eq!(limited.ask(&["AUTH", "team", "any"]).await, "+OK");
    let told = ["running_script", "name", "writes", "command", "FCALL", "writes", "duration_ms"];
    assert_eq!(limited.running_function().await, told);
    server.stop();
    server.stopped().await;
    // Its thread ends: the runtime of this test would wait for it.
    drop(runner.line().await);
}

#[tokio::test]
async fn scripts_behind_a_long_one_have_their_turn_in_order() {
    let server = server().await;
    let mut runner = Client::of(&server);
    runner.run_for_ever(&server, "").await;
    let mut others: Vec<Client> = (0..8).map(|_| Client::of(&server)).collect();
    let count = "for i = 1, 10 do redis.call('incr', KEYS[1]) end return redis.call('get', KEYS[1])";
    for other in &mut others {
        other.say(&["EVAL", count, "1", "n"]).await;
    }
    assert_eq!(Client::of(&server).kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"));
    for other in &mut others {
        assert!(other.line().await.starts_with('$'));
    }
    assert_eq!(server.keys().get("n").as_deref(), Some(&b"80"[..]));
    server.assert_laws();
}

#[tokio::test]
async fn a_script_on_a_large_value_is_ended_by_a_neighbour_whatever_loop_it_has() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    other.make_large_set().await;
    let begun = "redis.call('publish', 'begun', 'yes')";
    for script in [
        // Native scripts, except on the large set: with a counting loop, over ARGV, over its own list.
        format!("{begun} for i = 1, {OFTEN} do redis.call('smembers', KEYS[1]) end"),
        format!("{begun} for i = 1, {OFTEN} do redis.call('smembers', 'large') end"),
        format!("{begun} for i, k in ipairs(ARGV) do redis.call('smembers', KEYS[1]) end"),
        format!(
            "{begun} local l = {{}} for i, k in ipairs(ARGV) do table.insert(l, k) end \
             for i, k in ipairs(l) do redis.call('smembers', KEYS[1]) end"
        ),
        // Scripts that are never native.
        format!("{begun} local t = {{}} for i = 1, 300 do t.x = redis.call('smembers', KEYS[1]) end"),
        format!("{begun} local t = {{}} {}", "t.x = redis.call('smembers', KEYS[1]) ".repeat(300)),
        format!("{begun} local n = 0 while n < {OFTEN} do n = n + 1 redis.call('smembers', KEYS[1]) end"),
    ] {
        let args = ["x"; OFTEN];
        let words: Vec<&str> = ["EVAL", &script, "1", "large"].into_iter().chain(args).collect();
        runner.begin(&server, &words).await;
        assert_eq!(other.kill().await, "+OK", "{script}");
        assert!(runner.line().await.contains("Script killed by user"), "{script}");
    }
    server.assert_laws();
}

/// A runtime whose only blocking thread the test holds until it calls `let_go`: the script thread's calls wait for that.
fn held_up(test: impl AsyncFnOnce(Box<dyn FnOnce()>)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let blocking = tokio::task::spawn_blocking(move || held.recv().is_err());
        test(Box::new(move || drop(let_go))).await;
        assert!(blocking.await.unwrap(), "it was let go");
    });
}

/// The number of lines received on a socket so far.
fn lines_so_far(socket: &mut std::net::TcpStream) -> usize {
    use std::io::Read;
    socket.set_nonblocking(true).unwrap();
    let (mut lines, mut bytes) = (0, [0; 4096]);
    while let Ok(len @ 1..) = socket.read(&mut bytes) {
        lines += bytes[..len].iter().filter(|byte| **byte == b'\n').count();
    }
    lines
}

#[test]
fn a_pipeline_of_long_commands_lets_other_sockets_have_their_turn() {
    use std::io::{BufRead, Read, Write};
    let server = Server::builder().start_blocking().unwrap();
    let connect = || std::net::TcpStream::connect(server.addr()).unwrap();
    let mut other = connect();
    // Below the size of a large value: the worker itself carries the pipeline out.
    const ELEMENTS: usize = 1_500;
    let mut request = format!("*{}\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n", ELEMENTS + 2).into_bytes();
    (0..ELEMENTS).for_each(|n| request.extend_from_slice(format!("$7\r\nm{n:06}\r\n").as_bytes()));
    other.write_all(&request).unwrap();
    let mut answers = std::io::BufReader::new(other.try_clone().unwrap());
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert_eq!(line, format!(":{ELEMENTS}\r\n"));
    // A busy machine may let the server come to its end first; a server that serves one connection at a time always does.
    const REQUESTS: usize = 20_000;
    let is_served_meanwhile = (0..20).any(|_| {
        let mut runner = connect();
        runner.write_all(&b"LREM l 0 x\r\n".repeat(REQUESTS)).unwrap();
        // It has begun.
        runner.read_exact(&mut [0; 4]).unwrap();
        other.write_all(b"PING\r\n").unwrap();
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "+PONG\r\n");
        1 + lines_so_far(&mut runner) < REQUESTS
    });
    assert!(is_served_meanwhile, "PING is answered before the pipeline is through");
}

const RELEASE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// Native, and computes the names of its keys.
const NATIVE_ALL: &str = "redis.call('set', KEYS[1] .. 'a', '1') return redis.call('incr', KEYS[1] .. 'a')";
/// Not native, and short.
const INTERPRETED: &str = "local t = {} t.n = redis.call('incr', KEYS[1]) return t.n";

#[test]
fn an_interpreted_script_runs_on_the_script_thread_and_a_native_one_where_it_arrives() {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
        assert_eq!(other.ask(&["SET", "k", "v"]).await, "+OK");
        runner.say(&["EVAL", INTERPRETED, "1", "n"]).await;
        assert_eq!(other.ask(&["EVAL", RELEASE, "1", "k", "v"]).await, ":1");
        assert_eq!(other.ask(&["PING"]).await, "+PONG");
        assert!(runner.has_no_answer().await);
        let_go();
        assert_eq!(runner.line().await, ":1");
    });
}

#[test]
fn exec_runs_on_the_script_thread_if_it_holds_an_interpreted_script_or_is_large() {
    held_up(async |let_go| {
        let server = server().await;
        let mut other = Client::of(&server);
        let large = "x".repeat(70_000);
        let cases = [
            (&["EVAL", INTERPRETED, "1", "n"][..], false, ":1"),
            (&["FCALL", "none", "0"], false, "-ERR Function not found"),
            (&["SETRANGE", "k", "20000000", "x"], false, ":20000001"),
            (&["SET", "k", &large], false, "+OK"),
            (&["EVAL", RELEASE, "1", "k", "v"], true, ":1"),
            (&["SET", "k", "v"], true, "+OK"),
        ];
        let mut waiting = Vec::new();
        assert_eq!(other.ask(&["EVAL", RELEASE, "1", "k", "v"]).await, ":0", "the cache has it now");
        for (words, is_at_once, answer) in cases.into_iter().rev() {
            let mut runner = Client::of(&server);
            assert_eq!(runner.ask(&["MULTI"]).await, "+OK");
            assert_eq!(runner.ask(words).await, "+QUEUED");
            runner.say(&["EXEC"]).await;
            assert_eq!(other.ask(&["PING"]).await, "+PONG");
            if is_at_once {
                assert_eq!(runner.line().await, "*1");
                assert_eq!(runner.line().await, answer);
            } else {
                assert!(runner.has_no_answer().await, "{words:.40?}");
                waiting.push((runner, answer));
            }
        }
        let_go();
        for (mut runner, answer) in waiting {
            assert_eq!(runner.line().await, "*1");
            assert_eq!(runner.line().await, answer);
        }
    });
}

#[test]
fn a_command_on_a_large_value_runs_on_the_script_thread() {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
        other.make_set("small", 5).await;
        other.make_large_set().await;
        assert_eq!(other.ask(&["SMEMBERS", "small"]).await, "*500");
        runner.say(&["SMEMBERS", "large"]).await;
        assert_eq!(Client::of(&server).ask(&["SISMEMBER", "large", "x"]).await, ":0");
        assert!(runner.has_no_answer().await);
        let_go();
        assert_eq!(runner.line().await, "*30000");
    });
}

#[tokio::test]
async fn a_client_that_waits_for_a_key_is_woken_behind_a_long_script() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    let (mut waiter, mut pusher) = (Client::of(&server), Client::of(&server));
    waiter.say(&["BLPOP", "list", "0"]).await;
    runner.run_for_ever(&server, "").await;
    pusher.say(&["RPUSH", "list", "element"]).await;
    assert_eq!(other.kill().await, "+OK");
    assert_eq!(pusher.line().await, ":1");
    for line in ["*2", "$4", "list", "$7", "element"] {
        assert_eq!(waiter.line().await, line);
    }
}

#[tokio::test]
async fn a_lock_request_whose_wait_ends_behind_a_long_script_is_refused_in_the_form_that_it_asked_for() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    let (mut brief, mut curious) = (Client::of(&server), Client::of(&server));
    server.keys().set("k", "me", None);
    brief.say(&["LOCK.ACQUIRE", "k", "brief", "WAIT", "100"]).await;
    curious.say(&["LOCK.ACQUIRE", "k", "curious", "WAIT", "100", "WHY"]).await;
    assert!(brief.has_no_answer().await && curious.has_no_answer().await);
    runner.run_for_ever(&server, "").await;
    server.clock().advance(Duration::from_millis(101)).await;
    assert_eq!(brief.line().await, "*-1");
    // Nobody can look who holds the lock.
    let refused = ["*2", "$7", "refused", "*8", "$6", "holder", "$-1", "$5", "token", "$-1"];
    for line in refused.into_iter().chain(["$5", "lease", "$-1", "$4", "meta", "*0"]) {
        assert_eq!(curious.line().await, line);
    }
    assert_eq!(other.kill().await, "+OK");
}

#[test]
fn a_message_to_many_patterns_is_sent_by_the_script_thread() {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut listener) = (Client::of(&server), Client::of(&server));
        let patterns: Vec<String> = (0..5000).map(|n| format!("c*{n}")).collect();
        let words: Vec<&str> =
            ["PSUBSCRIBE"].into_iter().chain(patterns.iter().map(String::as_str)).collect();
        listener.say(&words).await;
        for _ in 0..6 * patterns.len() {
            listener.line().await;
        }
        runner.say(&["PUBLISH", "c-17", "m"]).await;
        assert_eq!(Client::of(&server).ask(&["PING"]).await, "+PONG");
        assert!(runner.has_no_answer().await);
        let_go();
        assert_eq!(runner.line().await, ":2", "c*7 and c*17");
        for line in ["*4", "$8", "pmessage"] {
            assert_eq!(listener.line().await, line);
        }
    });
}

#[test]
fn a_string_that_is_filled_up_far_is_filled_by_the_script_thread() {
    held_up(async |let_go| {
        let server = server().await;
        let mut runner = Client::of(&server);
        runner.say(&["SETRANGE", "k", "20000000", "x"]).await;
        assert_eq!(Client::of(&server).ask(&["PING"]).await, "+PONG");
        assert!(runner.has_no_answer().await);
        let_go();
        assert_eq!(runner.line().await, ":20000001");
    });
}

#[tokio::test]
async fn client_list_shows_the_words_of_a_script_that_runs() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    let argument = "x".repeat(200_000);
    runner.begin(&server, &["EVAL", FOR_EVER, "0", &argument]).await;
    other.say(&["CLIENT", "LIST"]).await;
    let mut line = other.line().await;
    while !line.contains(" cmd=eval ") {
        line = other.line().await;
    }
    let field = |name: &str| -> u64 {
        let value = line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    };
    assert!((200_000..210_000).contains(&field("qbuf=")), "{line}");
    assert!(field("tot-mem=") > 200_000, "{line}");
    assert_eq!(Client::of(&server).kill().await, "+OK");
}

#[tokio::test]
async fn memory_purge_drops_an_interpreter_without_libraries() {
    let server = server().await;
    let mut client = Client::of(&server);
    // It is interpreted, and leaves a compiled script behind.
    let script = format!("while false do end return #'{}'", "x".repeat(100_000));
    assert_eq!(client.ask(&["EVAL", &script, "0"]).await, ":100000");
    let memory = async |client: &mut Client| -> u64 {
        client.say(&["INFO", "memory"]).await;
        loop {
            if let Some(bytes) = client.line().await.strip_prefix("used_memory_lua:") {
                return bytes.parse().unwrap();
            }
        }
    };
    let before = memory(&mut client).await;
    while !client.line().await.is_empty() {}
    assert_eq!(client.ask(&["MEMORY", "PURGE"]).await, "+OK");
    let after = memory(&mut client).await;
    assert!(before > 100_000 && after < before - 100_000, "{before} bytes, then {after}");
}
