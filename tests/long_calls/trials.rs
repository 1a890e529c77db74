//! What is tried out where it came in: it is as if it had been done elsewhere, or not at all until it is done there.

use std::sync::{Arc, Mutex};

use redlatch::internals::journal::{Journal, Mutation};

use super::*;

#[test]
fn a_loop_that_turns_out_to_be_short_needs_no_other_thread_and_one_that_does_not_begins_again_there() {
    a_loop_is_tried_out_on(server);
}

#[test]
fn a_loop_that_a_journal_and_listeners_are_told_of_is_tried_out_as_well() {
    a_loop_is_tried_out_on(async || World::new("here").await.server);
}

fn a_loop_is_tried_out_on(server: impl AsyncFn() -> Server) {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
        let count = "local n = 0 while n < tonumber(ARGV[1]) do n = n + 1 redis.call('incr', KEYS[1]) end \
                     return redis.call('get', KEYS[1])";
        for round in 1..=3 {
            assert_eq!(
                runner.ask(&["EVAL", count, "1", "n", "5"]).await,
                "$".to_owned() + if round < 2 { "1" } else { "2" }
            );
            assert_eq!(runner.line().await, (5 * round).to_string());
        }
        runner.say(&["EVAL", count, "1", "n", "30000"]).await;
        assert_eq!(
            other.ask(&["GET", "n"]).await,
            "$2",
            "what it has done is taken back until it begins again"
        );
        assert_eq!(other.line().await, "15");
        assert!(runner.has_no_answer().await);
        let_go();
        assert_eq!(runner.line().await, "$5");
        assert_eq!(runner.line().await, "30015", "everything is done once");
        server.assert_laws();
    });
}

/// A function that keeps what it has done in variables and tables of its library.
const KEEPS: &str = "#!lua name=keeps
local count, seen = 0, { list = {} }
local function note(n)
    count = count + 1
    seen.list[#seen.list + 1] = n
    seen[n] = true
end
redis.register_function('notes', function(keys, args)
    for n = 1, tonumber(args[1]) do
        note(n)
        redis.call('incr', keys[1])
    end
    local fields = 0
    for _ in pairs(seen) do fields = fields + 1 end
    return count .. ' ' .. #seen.list .. ' ' .. fields .. ' ' .. redis.call('get', keys[1])
end)";

#[test]
fn a_function_that_begins_again_finds_what_it_has_kept_as_it_was() {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
        other.say(&["FUNCTION", "LOAD", KEEPS]).await;
        assert!(other.has_no_answer().await, "a library is loaded by another thread");
        let_go();
        assert_eq!(other.line().await, "$5");
        assert_eq!(other.line().await, "keeps");
        for expected in ["5 5 6 5", "10 10 6 10"] {
            runner.say(&["FCALL", "notes", "1", "n", "5"]).await;
            runner.line().await;
            assert_eq!(runner.line().await, expected);
        }
        runner.say(&["FCALL", "notes", "1", "n", "30000"]).await;
        runner.line().await;
        assert_eq!(runner.line().await, "30010 30010 30001 30010", "everything is done once");
        assert_eq!(runner.ask(&["FCALL", "notes", "1", "n", "5"]).await, "$23");
        assert_eq!(runner.line().await, "30015 30015 30001 30015", "what keeps much is not tried out");
        server.assert_laws();
    });
}

/// A transaction of these scripts, each of them on `k` and with `7`.
async fn exec(client: &mut Client, scripts: &[&str]) {
    assert_eq!(client.ask(&["MULTI"]).await, "+OK");
    for script in scripts {
        assert_eq!(client.ask(&["EVAL", script, "1", "k", "7"]).await, "+QUEUED");
    }
    client.say(&["EXEC"]).await;
}

#[test]
fn a_transaction_stays_where_it_is_until_one_of_its_scripts_turns_out_to_be_long() {
    const RELEASE: &str =
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    const INTERPRETED: &str = "local t = {} t.n = redis.call('incr', KEYS[1]) return t.n";
    const LOOP: &str =
        "local n = 0 while n < tonumber(ARGV[1]) do n = n + 1 redis.call('incr', KEYS[1]) end return n";
    held_up(async |let_go| {
        let server = server().await;
        let mut runner = Client::of(&server);
        for scripts in [&[RELEASE, INTERPRETED][..], &[INTERPRETED; 9], &[INTERPRETED, LOOP, RELEASE, LOOP]] {
            assert_eq!(runner.ask(&["SET", "k", "7"]).await, "+OK");
            assert_eq!(runner.ask(&["WATCH", "k"]).await, "+OK");
            exec(&mut runner, scripts).await;
            assert_eq!(runner.line().await, format!("*{}", scripts.len()));
            for (n, script) in scripts.iter().enumerate() {
                let expected = match *script {
                    INTERPRETED if scripts[0] == RELEASE => 1,
                    INTERPRETED => 8 + n,
                    LOOP => 7,
                    _ => usize::from(n == 0),
                };
                assert_eq!(runner.line().await, format!(":{expected}"));
            }
        }
        assert_eq!(runner.ask(&["SET", "k", "7"]).await, "+OK");
        assert_eq!(runner.ask(&["WATCH", "k"]).await, "+OK");
        exec(&mut runner, &[INTERPRETED, LOOP, INTERPRETED, "while true do redis.call('incr', KEYS[1]) end"])
            .await;
        let mut many = Client::of(&server);
        exec(&mut many, &["local n = 0 while n < 3 do n = n + 1 end return n"; 5]).await;
        let mut other = Client::of(&server);
        assert_eq!(other.ask(&["GET", "k"]).await, "$1");
        assert_eq!(other.line().await, "7", "all that it has done is taken back");
        assert!(many.has_no_answer().await, "so many are not tried out");
        assert_eq!(other.ask(&["SET", "k", "8"]).await, "+OK");
        assert!(runner.has_no_answer().await);
        let_go();
        assert_eq!(many.lines().await, ["*5", ":3", ":3", ":3", ":3", ":3"]);
        assert_eq!(runner.line().await, "*-1", "it goes on watching its keys until it begins again");
        assert_eq!(runner.ask(&["GET", "k"]).await, "$1");
        server.assert_laws();
    });
}

#[test]
fn what_others_would_see_at_once_is_not_tried_out() {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut listener) = (Client::of(&server), Client::of(&server));
        assert_eq!(listener.ask(&["SUBSCRIBE", "c"]).await, "*3");
        for line in ["$9", "subscribe", "$1", "c", ":1"] {
            assert_eq!(listener.line().await, line);
        }
        let script = "local n = 0 while n < 3 do n = n + 1 redis.call('incr', KEYS[1]) redis.call('publish', 'c', n) end";
        runner.say(&["EVAL", script, "1", "n"]).await;
        assert_eq!(Client::of(&server).ask(&["EXISTS", "n"]).await, ":0");
        let_go();
        for message in ["1", "2", "3"] {
            for line in ["*3", "$7", "message", "$1", "c", "$1", message] {
                assert_eq!(listener.line().await, line, "each is sent once");
            }
        }
        assert_eq!(runner.line().await, "$-1");
    });
}

#[test]
fn what_is_read_on_trial_is_remembered_as_soon_as_it_stays() {
    held_up(async |let_go| {
        let server = server().await;
        let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
        runner.say(&["HELLO", "3"]).await;
        while runner.line().await != "*0" {}
        assert_eq!(runner.ask(&["CLIENT", "TRACKING", "ON"]).await, "+OK");
        let script = "local n = 0 while n < tonumber(ARGV[1]) do n = n + 1 redis.call('get', 'read') \
                      redis.call('get', 'changed') redis.call('incr', 'changed') redis.call('get', 'both') end return n";
        let invalidated = |key: &str| {
            [
                ">2".to_owned(),
                "$10".into(),
                "invalidate".into(),
                "*1".into(),
                format!("${}", key.len()),
                key.into(),
            ]
        };
        assert_eq!(runner.ask(&["EVAL", script, "0", "1"]).await, ":1");
        assert_eq!(runner.lines().await, invalidated("changed"), "it has read it before it changed it");
        for (key, is_told) in [("changed", false), ("read", true), ("read", false), ("both", true)] {
            assert_eq!(other.ask(&["SET", key, "7"]).await, "+OK");
            if is_told {
                assert_eq!(runner.lines().await, invalidated(key));
            }
            assert!(runner.has_no_answer().await, "{key}");
        }
        runner.say(&["EVAL", script, "0", "30000"]).await;
        assert!(runner.has_no_answer().await, "it begins again where a thread may be held");
        assert_eq!(other.ask(&["SET", "read", "8"]).await, "+OK");
        assert!(runner.has_no_answer().await, "what it has read until then counts as not read");
        let_go();
        assert_eq!(runner.line().await, ":30000");
        for _ in 0..30_000 {
            assert_eq!(runner.lines().await, invalidated("changed"));
        }
        server.assert_laws();
    });
}

/// Statements on a few keys of every type; some cannot be taken back.
const STATEMENTS: &[&str] = &[
    "redis.call('incr', 'a')",
    "redis.call('set', 'b', n, 'px', 100000 + n)",
    "redis.call('append', 'c', 'x')",
    "redis.call('del', 'a')",
    "redis.call('getdel', 'b')",
    "redis.call('mset', 'a', '1', 'b', '2', 'c', '3')",
    "redis.call('pexpire', 'a', 50000 + n)",
    "redis.call('persist', 'b')",
    "redis.pcall('rename', 'a', 'b')",
    "redis.call('rpush', 'l', n)",
    "redis.call('lpop', 'l')",
    "redis.call('lmove', 'l', 'm', 'LEFT', 'RIGHT')",
    "redis.call('ltrim', 'm', 0, 3)",
    "redis.call('hset', 'h', n % 7, n)",
    "redis.call('hpexpire', 'h', 90000, 'FIELDS', 1, '3')",
    "redis.call('hdel', 'h', n % 5)",
    "redis.call('sadd', 's', n % 9)",
    "redis.call('smove', 's', 't', n % 4)",
    "redis.call('zadd', 'z', n, n % 6)",
    "redis.call('zpopmin', 'z')",
    "redis.call('zunionstore', 'y', 2, 'z', 's')",
    "redis.call('xadd', 'x', n .. '-1', 'f', 'v')",
    "redis.pcall('incr', 'l')",
    "redis.call('linsert', 'l', 'BEFORE', 'element ' .. n, n)",
    "redis.call('lrem', 'm', 2 - n % 4, 'element ' .. n % 9)",
    "redis.pcall('lset', 'l', n, 'set')",
    "redis.call('hset', 'h', 'element ' .. n % 30, n)",
    "redis.call('hdel', 'h', 'element ' .. n % 40)",
    "redis.call('spop', 't', 1000)",
    "redis.call('srem', 's', 'element ' .. n % 50)",
    "redis.call('zrem', 'z', 'element ' .. n % 60)",
    "redis.call('zremrangebyscore', 'z', n, n + 3)",
    "redis.call('zincrby', 'z', 5, 'element ' .. n % 70)",
    "redis.call('xadd', 'x', 'MAXLEN', '~', 150, n + 1000 .. '-1', 'f', 'v')",
    "redis.call('select', n % 2)",
    "redis.call('publish', 'c', n)",
    "redis.call('copy', 'a', 'd', 'DB', 1)",
    "redis.call('move', 'b', 1)",
    "redis.call('exists', 'a', 'b', 'h') redis.call('flushdb')",
    "if n == 2 then error('enough') end",
];

/// Makes values large, of which no copies are kept.
const ENLARGE: &str = "redis.call('del', 'l', 'm', 'h', 's', 'z', 'c') redis.call('set', 'c', string.rep('c', 5000)) \
    for n = 1, 600 do local e = 'element ' .. n % 250 redis.call('rpush', n % 2 == 0 and 'l' or 'm', e) \
    redis.call('hset', 'h', e, n) redis.call('zadd', 'z', n, e) redis.pcall('sadd', 's', e) end";

/// Everything that the keys hold, read by the interpreter in one answer.
const EVERYTHING: &str = "local all = {} for db = 0, 1 do redis.call('select', db) \
    for _, k in ipairs({'a','b','c','d','l','m','h','s','t','z','y','x'}) do local t = redis.call('type', k).ok \
    all[#all + 1] = db .. k .. t .. redis.call('pttl', k) .. (redis.call('object', 'encoding', k) or '') \
    local v = t == 'string' and {redis.call('get', k)} or t == 'list' and redis.call('lrange', k, 0, -1) \
    or t == 'hash' and redis.call('hgetall', k) or t == 'set' and redis.call('smembers', k) \
    or t == 'zset' and redis.call('zrange', k, 0, -1, 'withscores') or {} \
    if t == 'set' then table.sort(v) end all[#all + 1] = table.concat(v, ',') \
    if t == 'hash' then all[#all + 1] = cjson.encode(redis.call('hpttl', k, 'FIELDS', 1, '3')) end \
    end end return redis.sha1hex(table.concat(all, ' '))";

/// A journal that keeps what it hears of.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Journal for Heard {
    fn append(&self, _: u64, mutations: &[Mutation]) {
        self.0.lock().unwrap().extend(mutations.iter().map(|mutation| format!("{mutation:?}")));
    }
}

/// How a script is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum How {
    Script,
    Function,
    Transaction,
}

/// A server, somebody who runs scripts there, and somebody who hears of all events.
struct World {
    server: Server,
    heard: Arc<Heard>,
    runner: Client,
    listener: Client,
    /// The argument of its scripts.
    place: &'static str,
}

/// What scripts begin with: it changes nothing, but could take long, and is never tried out.
const PROLOGUE: &str = "if ARGV[1] == 'elsewhere' then redis.call('setrange', 'missing', 0, '') end ";

impl World {
    async fn new(place: &'static str) -> Self {
        let heard = Arc::new(Heard::default());
        let journal = Arc::clone(&heard) as Arc<dyn Journal>;
        let builder = Server::builder().manual_clock(START).journal(journal);
        let builder = builder.set("notify-keyspace-events", "KEA").set("enable-debug-command", "yes");
        let server = builder.start().await.unwrap();
        let (mut runner, mut listener) = (Client::of(&server), Client::of(&server));
        assert_eq!(runner.ask(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await, "+OK");
        listener.say(&["PSUBSCRIBE", "*"]).await;
        while listener.line().await != ":1" {}
        Self { server, heard, runner, listener, place }
    }

    /// Has the runner go on as somebody who may not do everything.
    async fn limit(&mut self) {
        let user = ["ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-sadd", "-shutdown"];
        assert_eq!(self.runner.ask(&user).await, "+OK");
        assert_eq!(self.runner.ask(&["AUTH", "limited", "x"]).await, "+OK");
    }

    /// How often a command has been refused to somebody.
    async fn refused(&mut self) -> String {
        let script = "return string.match(redis.call('info', 'stats'), 'acl_access_denied_cmd:(%d+)')";
        self.runner.ask(&["EVAL", script, "0"]).await;
        self.runner.line().await
    }

    /// What a script answers, a function of the same text, or both in a transaction behind something else.
    async fn run(&mut self, script: &str, how: How) -> Vec<String> {
        let script = &[PROLOGUE, script].concat();
        if how != How::Script {
            let library = format!(
                "#!lua name=tried\nredis.register_function('tried', function(KEYS, ARGV) {script} end)"
            );
            assert_eq!(self.runner.ask(&["FUNCTION", "LOAD", "REPLACE", &library]).await, "$5");
            assert_eq!(self.runner.line().await, "tried");
        }
        let requests: &[&[&str]] = match how {
            How::Script => &[&["EVAL", script, "0", self.place]],
            How::Function => &[&["FCALL", "tried", "0", self.place]],
            How::Transaction => &[
                &["WATCH", "a", "watched"],
                &["MULTI"],
                &["APPEND", "a", "0"],
                &["SELECT", "1"],
                &["RPUSH", "l", "1"],
                &["EVAL", script, "0", self.place],
                &["SELECT", "0"],
                &["FCALL", "tried", "0", self.place],
                &["PUBLISH", "c", "behind"],
                &["EXEC"],
            ],
        };
        for request in requests {
            self.runner.say(request).await;
        }
        let mut lines = Vec::new();
        self.runner.say(&["PING"]).await;
        while lines.last().is_none_or(|line| line != "+PONG") {
            lines.push(self.runner.line().await);
        }
        lines
    }

    /// A digest of all that is there, all that the journal heard of and all events, since this was last asked. Each key's in
    /// their order: what has expired may be told of before what began before it was found.
    async fn seen(&mut self) -> (String, Vec<String>, Vec<String>) {
        assert_eq!(self.runner.ask(&["EVAL", EVERYTHING, "0"]).await, "$40", "it is an answer");
        let digest = self.runner.line().await;
        assert_eq!(self.runner.ask(&["PUBLISH", "end", "of all"]).await, ":1");
        let mut told = Vec::new();
        while told.last().is_none_or(|line| line != "end: of all") {
            let lines: [String; 9] = self.listener.lines().await;
            told.push(format!("{}: {}", lines[6], lines[8]));
        }
        told.sort_by_key(|line| line.rsplit_once(": ").map(|(channel, _)| channel.to_owned()));
        let mut heard = std::mem::take(&mut *self.heard.0.lock().unwrap());
        // `Put { database: 0, key: b"a", ...`
        let key = |line: &str| {
            line.split_once('{').map(|(_, fields)| fields.split(',').take(2).collect::<String>())
        };
        heard.sort_by_key(|line| key(line));
        for mutation in &mut heard {
            // Each server has a seed of its own.
            *mutation = without_seeds(mutation);
        }
        (digest, heard, told)
    }
}

fn without_seeds(text: &str) -> String {
    let mut parts = text.split("Seed(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

/// `SEED=17 cargo test --test suite whatever_is_tried_out` runs the scripts of seed 17.
#[tokio::test]
async fn whatever_is_tried_out_does_what_it_does_elsewhere() {
    let (mut tried, mut elsewhere) = (World::new("here").await, World::new("elsewhere").await);
    let mut seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut draw = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % end
    };
    for round in 0..300 {
        if round == 200 {
            tried.limit().await;
            elsewhere.limit().await;
        }
        if round % 20 == 7 {
            assert_eq!(tried.run(ENLARGE, How::Script).await, elsewhere.run(ENLARGE, How::Script).await);
        }
        let statements: Vec<&str> = (0..1 + draw(6)).map(|_| STATEMENTS[draw(STATEMENTS.len())]).collect();
        let turns = [1, 3, 10, 200][draw(4)];
        let how = [How::Script, How::Function, How::Transaction][draw(3)];
        let script =
            format!("local n = 0 while n < {turns} do n = n + 1 {} end return n", statements.join(" "));
        let answer = tried.run(&script, how).await;
        assert_eq!(answer, elsewhere.run(&script, how).await, "{how:?}: {script}");
        assert_eq!(tried.seen().await, elsewhere.seen().await, "{script}");
        let passed = Duration::from_millis([0, 7, 60_000][draw(3)]);
        tried.server.clock().advance(passed).await;
        elsewhere.server.clock().advance(passed).await;
    }
    let refused = tried.refused().await;
    assert!(refused != "0" && refused == elsewhere.refused().await, "{refused}");
    tried.server.assert_laws();
}
