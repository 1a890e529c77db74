//! What a user learns of locks whose keys it may not see: nothing, by any command of the table.
//!
//! Belongs here  each command, on an engine of its own, for users with different rights. A command with keys is tried with
//!               all variants of its grammar; one without keys has a row in [`KEYLESS`].
//! Rule          a word that the request itself names is no secret; owners, META, reasons, sessions and other keys are.

use redlatch_core::commands::Command;
use redlatch_core::commands::row::{Arg, Flags, Kind};
use redlatch_core::commands::table::Keys;

use crate::support::engine::EngineTarget;
use crate::support::target::{Link, Target};
use crate::support::words::{request, words};

/// What a command without keys tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tells {
    /// Nothing of keys and locks.
    Nothing,
    /// Of keys and locks, as far as the user may see them.
    Own,
    /// The names of all keys or channels, or what other clients send: as in Redis, to users who may send it. src/security.md
    /// says so.
    AsRedis,
}

use Tells::{AsRedis, Nothing, Own};
use redlatch_testing::commands::table;

/// Every command without keys. A container counts by its subcommands.
const KEYLESS: &[(Tells, &str)] = &[
    (Nothing, "auth echo hello ping quit reset select readonly readwrite time role wait waitaof lastsave"),
    (
        Nothing,
        "client|caching client|getname client|getredir client|help client|id client|kill client|no-evict",
    ),
    (Nothing, "client|no-touch client|pause client|reply client|setinfo client|setname client|trackinginfo"),
    (Nothing, "client|unblock client|unpause script|load script|exists script|flush script|kill script|help"),
    (Nothing, "function|load function|list function|delete function|flush function|kill function|help"),
    // An interpreted function that runs: `long_calls` has its test.
    (Own, "function|stats"),
    (Own, "client|info client|list exec"),
    (Own, "lock.history lock.lint lock.graph lock.list lock.session|attach lock.session|id"),
    (Nothing, "lock.help lock.session|contended lock.session|help"),
    // The number of keys.
    (Nothing, "dbsize flushall flushdb swapdb object|help discard multi unwatch"),
    // Redis checks the keys that a command names, and not those that it finds.
    (AsRedis, "keys randomkey scan"),
    // Redis sends all clients with BCAST the names of all keys that change.
    (AsRedis, "client|tracking"),
    // Channels have rights of their own; PUBSUB CHANNELS shows the names of all.
    (AsRedis, "psubscribe subscribe pubsub|channels"),
    (Nothing, "pubsub|help pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub publish"),
    (Nothing, "punsubscribe unsubscribe spublish ssubscribe sunsubscribe"),
    // They answer words of the request.
    (Nothing, "command|count command|docs command|getkeys command|getkeysandflags command|info command|list"),
    (Nothing, "command|help config|get config|set config|resetstat config|rewrite config|help"),
    (Nothing, "acl|cat acl|deluser acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|load acl|save"),
    (Nothing, "acl|setuser acl|users acl|whoami"),
    // For administrators: the requests of all clients.
    (AsRedis, "acl|log slowlog|get monitor"),
    (Nothing, "slowlog|len slowlog|reset slowlog|help info"),
    (Nothing, "latency|histogram latency|history latency|latest latency|reset latency|help"),
    (Nothing, "cluster|help cluster|info cluster|myid cluster|nodes cluster|shards cluster|slots shutdown"),
    (Nothing, "cluster|addslots cluster|addslotsrange cluster|count-failure-reports cluster|keyslot asking"),
    (Nothing, "cluster|links cluster|myshardid cluster|replicas cluster|slaves"),
    // The number of keys in a slot, and their names.
    (Nothing, "cluster|countkeysinslot"),
    (AsRedis, "cluster|getkeysinslot"),
    (
        Nothing,
        "memory|doctor memory|malloc-stats memory|purge memory|stats memory|help module|list module|help",
    ),
    (Nothing, "save bgsave bgrewriteaof debug"),
    // Unknown in this server, which is neither a node of a cluster nor the backend of a test.
    (Nothing, "sentinel|* test.*"),
];

/// Further requests, by command; `;` separates those that are sent one after the other.
const MORE: &[(&str, &str)] = &[
    ("lock.list", "LOCK.LIST MATCH * COUNT 100000"),
    ("lock.list", "LOCK.LIST WAITED-LONGER 0 COUNT 100000"),
    ("lock.history", "LOCK.HISTORY MATCH * COUNT 10000"),
    ("exec", "MULTI;LOCK.LIST;LOCK.HISTORY;LOCK.LINT;EXEC"),
    ("lock.acquire", "LOCK.ACQUIRE hidden:K3Y me WHY"),
    ("lock.acquire", "LOCK.ACQUIRE hidden:K3Y me WHY WAIT 1"),
    ("lock.acquire", "LOCK.ACQUIRE hidden:circle me WAIT 60000"),
    ("lock.macquire", "LOCK.MACQUIRE 2 visible:new hidden:K3Y me WHY"),
    ("lock.macquire", "LOCK.MACQUIRE 2 visible:new hidden:circle me WAIT 60000"),
    ("lock.explain", "LOCK.EXPLAIN visible:a OWNER me"),
    ("set", "SET hidden:K3Y me NX"),
    ("set", "SET hidden:K3Y me GET"),
    ("eval", "EVAL \"return redis.pcall('GET', 'hidden:K3Y')\" 0"),
    ("eval", "EVAL \"return redis.pcall('LOCK.WHO', 'hidden:K3Y')\" 0"),
    ("eval", "EVAL \"return redis.pcall('LOCK.LIST')\" 0"),
    (
        "eval",
        "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) \
         else return 0 end\" 1 hidden:K3Y me",
    ),
    ("exec", "MULTI;GET hidden:K3Y;LOCK.WHO hidden:K3Y;EXEC"),
    ("client|list", "CLIENT LIST ID 1 2 3 4 5 6 7 8"),
    ("client|tracking", "CLIENT TRACKING ON BCAST"),
    ("client|tracking", "CLIENT TRACKING ON NOLOOP"),
    ("psubscribe", "PSUBSCRIBE *"),
    ("psubscribe", "PSUBSCRIBE __key*__:*"),
    ("subscribe", "SUBSCRIBE __keyevent@0__:del __keyevent@0__:set"),
    ("info", "INFO everything"),
    ("randomkey", "RANDOMKEY;RANDOMKEY;RANDOMKEY;RANDOMKEY;RANDOMKEY;RANDOMKEY;RANDOMKEY;RANDOMKEY"),
    ("scan", "SCAN 0 COUNT 100000"),
    ("slowlog|get", "SLOWLOG GET -1"),
    ("acl|log", "ACL LOG 1000"),
    ("latency|latest", "LATENCY LATEST"),
    ("memory|doctor", "MEMORY DOCTOR"),
    ("cluster|countkeysinslot", "CLUSTER COUNTKEYSINSLOT 13253"),
    // The slot of hidden:K3Y.
    ("cluster|getkeysinslot", "CLUSTER GETKEYSINSLOT 13253 100"),
];

/// Users: their name, their rules.
const USERS: &[(&str, &str)] = &[
    ("all", "+@all ~visible:* &visible:*"),
    ("channels", "+@all -@admin -@dangerous ~visible:* &*"),
    ("service", "+@all -@admin -@dangerous ~visible:*"),
    ("locks", "+@lock +auth +hello ~visible:*"),
    ("writer", "+@all -@admin -@dangerous ~visible:* %W~hidden:*"),
    (
        PRIVATE,
        "+@all -@admin -@dangerous -scan -randomkey -client|tracking -pubsub -cluster|getkeysinslot ~visible:*",
    ),
];

/// The user that src/security.md advises: it learns nothing, not even as in Redis.
const PRIVATE: &str = "private";

/// What the users must not learn. Each is said to the server as below.
const SECRETS: [&str; 9] = ["K3Y", "K4Y", "K5Y", "0WNER", "W41TER", "M3TA", "R34SON", "P0LLER", "C1RCLE"];

/// An engine with locks that the users may not see, and the connection of a user.
struct World {
    target: EngineTarget,
    admin: Link,
    reader: Link,
    secrets: Vec<String>,
}

impl World {
    fn of(rules: &str) -> Self {
        Self::on(EngineTarget::start(), rules)
    }

    fn on(mut target: EngineTarget, rules: &str) -> Self {
        let [admin, waiter, other, circle, third, denied, reader] = [(); 7].map(|()| target.connect());
        let mut world = Self { target, admin, reader, secrets: SECRETS.map(str::to_owned).to_vec() };
        world.say(admin, "CONFIG SET lock-lint yes slowlog-log-slower-than 0 notify-keyspace-events KEA");
        world.say(admin, &format!("ACL SETUSER user on nopass {rules}"));
        world.say(admin, "LOCK.EXPLAIN hidden:K4Y");
        // A lock with a queue, one that is polled, one that was broken, one of a session, and findings.
        world.say(admin, "LOCK.ACQUIRE hidden:K3Y 0WNER LEASE 60000 META work M3TA");
        world.say(waiter, "LOCK.ACQUIRE hidden:K3Y W41TER WAIT 60000");
        world.say(other, "SET hidden:K4Y P0LLER NX");
        for _ in 0..3 {
            world.say(circle, "SET hidden:K4Y P0LLER NX");
        }
        world.say(admin, "LOCK.ACQUIRE hidden:K4Y:gone 0WNER");
        let token = world.say(admin, "LOCK.TOKEN hidden:K4Y:gone 0WNER");
        let token = token.trim_start_matches([':', '(']).trim().to_owned();
        world.say(admin, &format!("LOCK.BREAK hidden:K4Y:gone TOKEN {token} REASON R34SON"));
        world.say(other, "LOCK.ACQUIRE hidden:K4Y:session 0WNER SESSION");
        let session = world.say(other, "LOCK.SESSION ID");
        world.secrets.push(session.lines().last().expect("the number of a session").trim().to_owned());
        // A request that was denied.
        world.say(denied, "AUTH user any");
        world.say(denied, "GET hidden:K4Y");
        // A channel whose name has the name of a lock.
        world.say(admin, "SUBSCRIBE __lock__:hidden:K4Y");
        world.say(reader, "HELLO 3 AUTH user any");
        // The reader closes a circle of three if it waits for the first of two hidden locks.
        world.say(reader, "LOCK.ACQUIRE visible:mine me LEASE 60000");
        world.say(circle, "LOCK.ACQUIRE hidden:circle C1RCLE LEASE 60000 META work M3TA");
        world.say(third, "LOCK.ACQUIRE hidden:K5Y third LEASE 60000");
        world.say(circle, "LOCK.ACQUIRE hidden:K5Y C1RCLE WAIT 60000");
        world.say(third, "LOCK.ACQUIRE visible:mine third WAIT 60000");
        world.say(other, "LOCK.ACQUIRE visible:a someone LEASE 60000");
        world
    }

    /// Sends a request of these words, and returns all that is answered at once.
    fn say(&mut self, link: Link, line: &str) -> String {
        self.tell(link, &words(line).expect("words"))
    }

    fn tell(&mut self, link: Link, words: &[Vec<u8>]) -> String {
        self.target.send(link, &request(words));
        self.target.heard(link)
    }

    /// What the reader hears of this request, and of what others do after it.
    fn told(&mut self, requests: &[Vec<Vec<u8>>]) -> String {
        let mut told: String = requests.iter().map(|words| self.tell(self.reader, words)).collect();
        for line in
            ["UNSUBSCRIBE", "SET hidden:K4Y:new 0WNER", "LOCK.RELEASE hidden:K3Y 0WNER", "DEL hidden:K4Y"]
        {
            self.say(self.admin, line);
        }
        self.target.advance(std::time::Duration::from_millis(2));
        told.push_str(&self.target.heard(self.reader));
        told
    }
}

/// The secrets that a user with these rules is told by these requests. CLUSTER is asked of a server in cluster mode.
fn learned(rules: &str, requests: &[Vec<Vec<u8>>]) -> Vec<String> {
    let mut world = match requests[0][0].eq_ignore_ascii_case(b"CLUSTER") {
        true => World::on(EngineTarget::start_with_slots(), rules),
        false => World::of(rules),
    };
    let told = world.told(requests);
    let asked = String::from_utf8_lossy(&requests.concat().concat()).into_owned();
    world.secrets.retain(|secret| told.contains(secret) && !asked.contains(secret));
    world.secrets
}

/// The requests of a command: with each choice of its grammar, with and without what is optional, for a key that the user
/// may not see; and for one that it may see.
fn requests_of(command: &Command) -> Vec<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<Vec<u8>>> = Vec::new();
    let variants = [0, 1, 2].map(|choice| ("hidden:K3Y", choice, true));
    for how in variants.into_iter().chain([("hidden:K3Y", 0, false), ("visible:a", 0, true)]) {
        let mut words: Vec<Vec<u8>> = command.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        fill(&mut words, command.row.args, how);
        found.extend((!found.contains(&words)).then_some(words));
    }
    found
}

fn fill(words: &mut Vec<Vec<u8>>, args: &[Arg], how: (&str, usize, bool)) {
    let (key, choice, is_full) = how;
    for arg in args.iter().filter(|arg| is_full || !arg.is_optional) {
        words.extend(arg.token.map(|token| token.as_bytes().to_vec()));
        match arg.kind {
            Kind::Token => {}
            Kind::Block(inner) => fill(words, inner, how),
            Kind::OneOf(choices) => fill(words, std::slice::from_ref(&choices[choice % choices.len()]), how),
            Kind::Key => words.push(key.as_bytes().to_vec()),
            Kind::KeyCount | Kind::Integer | Kind::Double => words.push(b"1".to_vec()),
            Kind::UnixTime => words.push(b"99999999999".to_vec()),
            Kind::Channel { is_pattern: true } | Kind::Pattern => words.push(b"*".to_vec()),
            Kind::Channel { is_pattern: false } => words.push(b"__lock__:hidden:circle".to_vec()),
            Kind::Text => words.push(b"x".to_vec()),
        }
    }
}

/// Commands that can be sent by themselves.
fn commands() -> impl Iterator<Item = &'static Command> {
    let leaves = |command: &'static Command| match command.subcommands.is_empty() {
        true => vec![command],
        false => command.subcommands.iter().collect(),
    };
    table().all().flat_map(leaves)
}

/// What a command without keys tells; `None`: it has no row.
fn verdict(command: &Command) -> Option<Tells> {
    let is_it = |word: &str| match word.strip_suffix('*') {
        Some(start) => command.name.starts_with(start),
        None => command.name == word,
    };
    KEYLESS.iter().find(|(_, names)| names.split(' ').any(is_it)).map(|(tells, _)| *tells)
}

#[test]
fn every_command_without_keys_says_what_it_tells() {
    let missing: Vec<&str> = commands()
        .filter(|command| command.keys == Keys::Nowhere && verdict(command).is_none())
        .map(|command| command.name.as_str())
        .collect();
    assert!(missing.is_empty(), "no row in KEYLESS, which says what they tell of keys: {missing:?}");
    let known: Vec<&str> = commands().map(|command| command.name.as_str()).collect();
    for word in KEYLESS.iter().flat_map(|(_, names)| names.split(' ')) {
        let is_known = known.iter().any(|name| *name == word || word.ends_with('*'));
        assert!(is_known, "{word}: no such command");
    }
}

#[test]
fn no_command_tells_a_user_of_a_lock_that_it_may_not_see() {
    let (mut leaks, mut told_as_redis) = (Vec::new(), std::collections::BTreeSet::new());
    for command in commands() {
        let verdict = verdict(command);
        let more = MORE.iter().filter(|(name, _)| *name == command.name);
        let more = more.map(|(_, lines)| lines.split(';').map(|line| words(line).expect("words")).collect());
        // It would wait for the end of a pause, or of the server.
        let is_tried = !["client|pause", "shutdown"].contains(&command.name.as_str());
        let made = requests_of(command).into_iter().filter(|_| is_tried).map(|words| vec![words]);
        for requests in made.chain(more) {
            // The rights of the others differ only in what has no keys.
            let is_for = |user: &str| verdict.is_some() || !["channels", PRIVATE].contains(&user);
            for (user, rules) in USERS.iter().filter(|(user, _)| is_for(user)) {
                let learned = learned(rules, &requests);
                match verdict {
                    _ if learned.is_empty() => {}
                    Some(AsRedis) if *user != PRIVATE => drop(told_as_redis.insert(command.name.as_str())),
                    _ => {
                        let asked = String::from_utf8_lossy(&requests.concat().join(&b' ')).into_owned();
                        leaks.push(format!("{user}: {asked}: {learned:?}"));
                    }
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
    let listed: std::collections::BTreeSet<&str> = KEYLESS
        .iter()
        .filter(|(tells, _)| *tells == AsRedis)
        .flat_map(|(_, names)| names.split(' '))
        .collect();
    assert_eq!(told_as_redis, listed, "what tells of foreign keys is listed, and nothing else is");
}

#[test]
fn a_deadlock_is_told_without_its_foreign_locks() {
    let writer = USERS.iter().find(|(user, _)| *user == "writer").expect("a user").1;
    for request in ["LOCK.ACQUIRE hidden:circle me WAIT 60000", "LOCK.MACQUIRE 1 hidden:circle me WAIT 60000"]
    {
        let requests = [words(request).expect("words")];
        let told = World::of(writer).told(&requests);
        assert!(told.starts_with("-DEADLOCK another lock"), "{request}: {told}");
        assert_eq!(learned(writer, &requests), Vec::<String>::new(), "{request}");
    }
}

#[test]
fn what_tells_of_foreign_keys_as_in_redis_is_named_by_the_security_page() {
    let page = include_str!("../../../src/security.md");
    for word in KEYLESS.iter().filter(|(tells, _)| *tells == AsRedis).flat_map(|(_, names)| names.split(' '))
    {
        let name = word.to_ascii_uppercase().replace('|', " ");
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_secrets_are_there_for_a_user_who_may_see_them() {
    let mut world = World::of("+@all ~* &*");
    let requests = [
        "LOCK.LIST COUNT 100000", "LOCK.WAITERS hidden:K3Y", "LOCK.HISTORY COUNT 100", "LOCK.LINT",
        "CLIENT LIST",
    ];
    let requests: Vec<_> = requests.iter().map(|line| words(line).expect("words")).collect();
    let told = world.told(&requests);
    for secret in &world.secrets {
        assert!(told.contains(secret), "{secret} is nowhere, so that no test would find it: {told}");
    }
    assert!(table().all().any(|command| command.row.flags.has(Flags::ADMIN)));
}

#[test]
#[cfg(feature = "http")]
fn what_http_tells_needs_a_user_with_all_permissions() {
    use crate::support::http::HttpClient;

    let server = redlatch::Server::builder()
        .set("http-port", "auto")
        .password("secret")
        .user("worker", ["on", ">shovel", "~visible:*", "+@all"])
        .start_blocking()
        .expect("a server starts");
    let mut peer = crate::support::stream::Peer::to(server.addr());
    assert_eq!(peer.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(peer.ask(b"SET hidden:K3Y 0WNER NX PX 60000\r\n"), "+OK");
    // In base64: "worker:shovel", ":secret".
    let [worker, operator] =
        ["d29ya2VyOnNob3ZlbA==", "OnNlY3JldA=="].map(|login| format!("Authorization: Basic {login}\r\n"));
    let ask = |path: &str, login: &str| HttpClient::to(server.http_addr()).ask("GET", path, login);
    assert!(ask("/api/locks", &operator).body.contains("0WNER"));
    for path in [
        "/", "/api/clients", "/api/contention", "/api/events", "/api/graph", "/api/lint", "/api/locks",
        "/api/lock?key=hidden:K3Y", "/healthz", "/metrics", "/page.js", "/readyz",
    ] {
        let reply = ask(path, &worker);
        assert!(reply.status == 403 || reply.status == 200, "{path}: {reply:?}");
        assert!(!reply.body.contains("K3Y") && !reply.body.contains("0WNER"), "{path}: {reply:?}");
    }
}
