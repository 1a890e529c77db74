//! A real redis-server to compare with: started for one test, on a socket of its own, ended with it.
//!
//! Owns    the process, its directory, and a minimal RESP client.
//! Knows   native scripts only through their public names. Each case runs twice from one state, once as EVAL and once
//!         natively, its calls sent to the server one by one; reply and state must be the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redlatch::resp::{Protocol, Reply as Out};
use redlatch::scripts::Inputs;
use redlatch::scripts::native::{Calls, Program};

use super::draw::Draw;

/// A server and a connection to it.
pub(crate) struct Redis {
    child: Child,
    directory: PathBuf,
    stream: BufReader<UnixStream>,
    draw: Draw,
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
        Some(Self { child, directory, stream, draw: Draw::new() })
    }

    /// Runs one script from so many random states; returns in how many it could run natively.
    pub(crate) fn compare(&mut self, script: &str, turns: usize) -> usize {
        let program = Program::read(script.as_bytes()).expect("a native script");
        let sha1 = self.send(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        let Reply::Bulk(sha1) = sha1 else { panic!("{script}: {sha1:?}") };
        let sha1 = String::from_utf8(sha1).expect("hexadecimal digits");
        let all: [&[u8]; 5] = [b"k1", b"k2", b"k3", b"k4", b"k5"];
        let mut cases = 0;
        for _ in 0..turns {
            let keys = &all[..1 + self.draw.below(all.len())];
            let (args, state) = (self.draw.args(script), self.draw.state(keys));
            // A lease of a second would end at its own whim.
            let is_short = |word: &[u8]| matches!(word, [b'1'..=b'9'] | b"10\0" | b"1000" | b"1.5" | b"0x10");
            if args.iter().any(|arg| is_short(arg)) || !program.fits(Inputs::new(keys, &args)) {
                continue;
            }
            cases += 1;
            let count = keys.len().to_string();
            let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
            command.extend_from_slice(keys);
            command.extend_from_slice(&args);
            self.prepare(&state);
            let expected = (self.send(&command), self.dump(keys));
            self.prepare(&state);
            let reply = self.run(&program, keys, &args, &sha1);
            // A script that selects leaves its caller where it was.
            self.send(&[b"SELECT", b"0"]);
            let left = self.dump(keys);
            let args: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
            let case = format!("{script}\n  {state:?} {} keys, {args:?}", keys.len());
            assert!(alike(&reply, &expected.0), "{case}\n  native {reply:?}\n  redis  {:?}", expected.0);
            assert!(alike(&left, &expected.1), "{case}\n  native {left:?}\n  redis  {:?}", expected.1);
        }
        cases
    }

    fn run(&mut self, program: &Program, keys: &[&[u8]], args: &[&[u8]], sha1: &str) -> Reply {
        let mut out = Vec::new();
        let result = program.run(
            &Inputs::new(keys, args),
            self,
            &mut Vec::new(),
            &mut Out::new(&mut out, Protocol::Resp2),
        );
        match result {
            Ok(()) => read(&mut out.as_slice()),
            Err(raised) => {
                let text = String::from_utf8_lossy(&raised.text);
                Reply::Error(format!("{text} script: {sha1}, on @user_script:{}.", raised.line))
            }
        }
    }

    fn prepare(&mut self, state: &[Vec<Vec<u8>>]) {
        self.send(&[b"FLUSHALL"]);
        for command in state {
            // Nor may a key that is there when the first run begins be gone when the second does.
            let words = command
                .iter()
                .map(|word| if word == b"1" && command[0] == b"PEXPIRE" { b"80000" } else { &word[..] });
            self.send(&words.collect::<Vec<_>>());
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

    fn send(&mut self, words: &[&[u8]]) -> Reply {
        let mut reply = Vec::new();
        self.call(None, words, &mut reply);
        read(&mut reply.as_slice())
    }
}

impl Calls for Redis {
    fn call(&mut self, _: Option<usize>, words: &[&[u8]], reply: &mut Vec<u8>) {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("a server that reads");
        let start = reply.len();
        copy(&mut self.stream, reply);
        // Nobody but a script is told so in these words, and here it is no script that asks.
        if reply[start..].starts_with(b"-ERR wrong number of arguments for") {
            reply.truncate(start);
            reply.extend_from_slice(b"-ERR Wrong number of args calling Redis command from script\r\n");
        }
    }
}

/// Takes one whole reply.
fn copy(from: &mut impl BufRead, into: &mut Vec<u8>) {
    let start = into.len();
    from.read_until(b'\n', into).expect("a server that answers");
    let line = String::from_utf8_lossy(&into[start..]).into_owned();
    match (line.as_bytes()[0], line[1..].trim_end().parse::<u64>()) {
        (b'$', Ok(len)) => drop(from.take(len + 2).read_to_end(into).expect("a whole bulk")),
        (b'*', Ok(len)) => (0..len).for_each(|_| copy(from, into)),
        _ => {}
    }
}

fn read(from: &mut &[u8]) -> Reply {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line of text");
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "+" => Reply::Status(rest.into()),
        "-" => Reply::Error(rest.into()),
        ":" => Reply::Integer(rest.parse().expect("an integer")),
        "*" => Reply::Array((0..rest.parse::<usize>().expect("a length")).map(|_| read(from)).collect()),
        "$" if rest == "-1" => Reply::Nil,
        "$" => {
            let (bytes, after) = from.split_at(rest.parse().expect("a length"));
            *from = &after[2..];
            Reply::Bulk(bytes.to_vec())
        }
        _ => panic!("not RESP: {line:?}"),
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
