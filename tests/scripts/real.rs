//! A real redis-server to compare with: started for one test, on a socket of its own, ended with it.
//!
//! Owns    the process, its directory, and a minimal RESP client.
//! Knows   the recogniser only through its public names. Each case runs twice from one state, once as EVAL and once as
//!         the native program whose calls are sent to the server one by one; reply and state must be the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redlatch::scripts::native::{Answer, Calls, Item, Returned};
use redlatch::scripts::recognise;

/// A server and a connection to it.
pub(crate) struct Redis {
    child: Child,
    directory: PathBuf,
    stream: BufReader<UnixStream>,
    last: Vec<u8>,
}

/// A reply, as far as lock scripts give any.
#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Array(Vec<Reply>),
    Bulk(Vec<u8>),
    Error(String),
    Integer(i64),
    Nil,
    Status(String),
}

impl Redis {
    /// The server that the environment names, started; `None`, and a word about it, where it names none.
    pub(crate) fn from_environment() -> Option<Self> {
        let Some(binary) = std::env::var_os("REDLATCH_REDIS_SERVER") else {
            eprintln!("skipped: REDLATCH_REDIS_SERVER is not set");
            return None;
        };
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
        let directory =
            std::env::temp_dir().join(format!("redlatch-scripts-{}-{thread}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let socket = directory.join("redis.sock");
        let mut child = Command::new(binary)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("REDLATCH_REDIS_SERVER starts");
        // The server's own word, not a sleep, says when it listens.
        let log = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("eady to accept connections")), "the server did not start");
        std::thread::spawn(move || lines.for_each(drop));
        let stream = BufReader::new(UnixStream::connect(&socket).expect("a server that listens"));
        Some(Self { child, directory, stream, last: Vec::new() })
    }

    /// Runs one script over many small states; answers in how many of them it could run natively.
    pub(crate) fn compare(&mut self, script: &str, seed: usize) -> usize {
        let found = recognise(script.as_bytes()).unwrap_or_else(|| panic!("not recognised: {script}"));
        let sha1 = self.send(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        let Reply::Bulk(sha1) = sha1 else { panic!("{script}: {sha1:?}") };
        let sha1 = String::from_utf8(sha1).expect("hexadecimal digits");
        let is_rare = !(60..=2_500).contains(&seed);
        let mut cases = 0;
        for (place, state) in STATES.iter().enumerate() {
            for (turn, args) in ARGUMENTS.iter().enumerate() {
                // As a lease, a length or the number of a database would end at its own whim.
                let is_length = args[1] == b"4";
                let is_database = args[0].len() == 1;
                if is_length && !script.contains("getrange") || is_database && !script.contains("select") {
                    continue;
                }
                if !is_rare && !(place + turn + seed).is_multiple_of(ARGUMENTS.len()) {
                    continue;
                }
                let keys: [&[u8]; 3] =
                    [b"k1", b"k2", if script.contains("KEYS[3]") { args[0] } else { b"k3" }];
                if !found.fits(&keys, args) {
                    continue;
                }
                cases += 1;
                let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), b"3"];
                command.extend_from_slice(&keys);
                command.extend_from_slice(args);
                self.prepare(state);
                let expected = self.send(&command);
                let expected_state = self.dump(&keys);
                self.prepare(state);
                let reply = match found.run(&keys, args, self) {
                    Ok(returned) => self.reply(returned),
                    Err(raised) => {
                        let text = String::from_utf8_lossy(&self.last).into_owned();
                        Reply::Error(format!(
                            "{text} script: {sha1}, on @user_script:{}.",
                            found.line(raised)
                        ))
                    }
                };
                // A script that selects leaves its caller where it was.
                self.send(&[b"SELECT", b"0"]);
                let case =
                    format!("{script}\n  {} {state:?} {:?}", found.name(), args.map(String::from_utf8_lossy));
                assert!(alike(&reply, &expected), "{case}\n  native {reply:?}\n  redis  {expected:?}");
                let state = self.dump(&keys);
                assert!(
                    alike(&state, &expected_state),
                    "{case}\n  native {state:?}\n  redis  {expected_state:?}"
                );
            }
        }
        cases
    }

    fn prepare(&mut self, state: &[&[&str]]) {
        self.send(&[b"FLUSHALL"]);
        for command in state {
            let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
            self.send(&words);
        }
    }

    fn dump(&mut self, keys: &[&[u8]]) -> Reply {
        let mut found = Vec::new();
        for key in keys {
            found.push(self.send(&[b"DUMP", key]));
            found.push(self.send(&[b"PTTL", key]));
        }
        found.push(self.send(&[b"DBSIZE"]));
        self.send(&[b"SELECT", b"3"]);
        found.push(self.send(&[b"DBSIZE"]));
        self.send(&[b"SELECT", b"0"]);
        Reply::Array(found)
    }

    fn reply(&self, returned: Returned) -> Reply {
        let text = || String::from_utf8_lossy(&self.last).into_owned();
        match returned {
            Returned::Array(items) => Reply::Array(items.into_iter().map(Reply::from).collect()),
            Returned::Bulk(text) => Reply::Bulk(text.into()),
            Returned::Error(line) => Reply::Error(line.into()),
            Returned::Integer(number) | Returned::Last(Answer::Integer(number)) => Reply::Integer(number),
            Returned::Last(Answer::Bulk) => Reply::Bulk(self.last.clone()),
            Returned::Last(Answer::Error) => Reply::Error(text()),
            Returned::Last(Answer::Status) => Reply::Status(text()),
            Returned::Last(Answer::Nil) | Returned::Nil => Reply::Nil,
            Returned::Status(line) => Reply::Status(line.into()),
        }
    }

    fn send(&mut self, words: &[&[u8]]) -> Reply {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("a server that reads");
        self.read()
    }

    fn read(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a server that answers");
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" => Reply::Status(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(rest.parse().expect("an integer")),
            "*" => Reply::Array((0..rest.parse::<usize>().expect("a length")).map(|_| self.read()).collect()),
            "$" if rest == "-1" => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().expect("a length") + 2];
                self.stream.read_exact(&mut bytes).expect("a whole bulk");
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            _ => panic!("not RESP: {line:?}"),
        }
    }
}

impl Calls for Redis {
    fn call(&mut self, command: &'static str, args: &[&[u8]]) -> Answer {
        let mut words = vec![command.as_bytes()];
        words.extend_from_slice(args);
        match self.send(&words) {
            Reply::Bulk(bytes) => {
                self.last = bytes;
                Answer::Bulk
            }
            Reply::Error(line) => {
                self.last = line.into();
                Answer::Error
            }
            Reply::Status(line) => {
                self.last = line.into();
                Answer::Status
            }
            Reply::Integer(number) => Answer::Integer(number),
            Reply::Nil => Answer::Nil,
            Reply::Array(_) => panic!("{command}: a program calls nothing that answers with an array"),
        }
    }

    fn text(&self) -> &[u8] {
        &self.last
    }
}

impl From<Item> for Reply {
    fn from(item: Item) -> Self {
        match item {
            Item::Bulk(bytes) => Self::Bulk(bytes),
            Item::Integer(number) => Self::Integer(number),
            Item::Nil => Self::Nil,
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Nothing to be done about a server that has already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Equal, but for time that went by between the two runs.
fn alike(left: &Reply, right: &Reply) -> bool {
    match (left, right) {
        (Reply::Integer(left), Reply::Integer(right)) if *left > 20_000 => (left - right).abs() < 10_000,
        (Reply::Array(left), Reply::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| alike(left, right))
        }
        (left, right) => left == right,
    }
}

const STATES: &[&[&[&str]]] = &[
    &[],
    &[&["SET", "k1", "mine"]],
    &[&["SET", "k1", "mine", "PX", "90000"], &["SET", "k2", "mine", "PX", "70000"], &["SET", "k3", "mine"]],
    &[&["SET", "k1", "other", "PX", "90000"], &["RPUSH", "k2", "x", "y"]],
    &[&["RPUSH", "k1", "mine"]],
    &[&["SET", "k1", "mine-and-more"], &["SET", "k2", "mine"], &["SET", "k3", "mine"]],
    &[&["SET", "k1", "mine"], &["SET", "k2", "mine"], &["RPUSH", "k3", "mine"]],
];

/// Tokens, leases and switches, good and bad.
const ARGUMENTS: &[[&[u8]; 3]] = &[
    [b"mine", b"100000", b"0"],
    [b"mine", b"0", b"no"],
    [b"mine", b"-1", b"0"],
    [b"mine", b"ten", b"x"],
    [b"mine", b" 1e5", b"50000"],
    [b"mine", b"1.5", b"0"],
    [b"mine", b"4", b"60000"],
    [b"other", b"9223372036854775807", b"0"],
    [b"0", b"mine", b"60000"],
    [b"3", b"mine", b"60000"],
];
