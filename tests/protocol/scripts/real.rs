//! A real redis-server for comparison: started per test, on its own socket.
//!
//! Knows   native scripts through their public names. Each case runs twice from one state, once as EVAL and once
//!         natively with its calls sent to the server one by one; reply and state must be equal.

use redlatch_core::scripts::Inputs;
use redlatch_core::scripts::native::{Calls, Program};
use redlatch_proto::resp::{Protocol, Reply as Out};

use super::draw::Draw;
use crate::support::real::RealServer;
use crate::support::reply::Reply;
use crate::support::target::{Heard, Link, Target, Wait};
use crate::support::words::request;

/// A server and a connection to it.
pub(crate) struct Redis {
    server: RealServer,
    link: Link,
    draw: Draw,
}

impl Redis {
    /// Starts the server that the environment names.
    pub(crate) fn start() -> Self {
        let mut server = RealServer::start("redis");
        let link = server.connect();
        Self { server, link, draw: Draw::new() }
    }

    /// Runs one script from many random states; returns how many runs were native.
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
            // A lease of a second could end between the two runs.
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
            // SELECT inside a script does not change the caller's database.
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
            Ok(()) => read(&out),
            Err(raised) => {
                let text = String::from_utf8_lossy(&raised.text);
                Reply::Error(format!("{text} script: {sha1}, on @user_script:{}.", raised.line).into_bytes())
            }
        }
    }

    fn prepare(&mut self, state: &[Vec<Vec<u8>>]) {
        self.send(&[b"FLUSHALL"]);
        for command in state {
            // A key that exists for the first run must not expire before the second.
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
        Reply::List(b'*', found)
    }

    fn send(&mut self, words: &[&[u8]]) -> Reply {
        let mut reply = Vec::new();
        self.call(None, words, &mut reply);
        read(&reply)
    }
}

impl Calls for Redis {
    fn call(&mut self, _: Option<usize>, words: &[&[u8]], reply: &mut Vec<u8>) {
        self.server.send(self.link, &request(words));
        let start = reply.len();
        while Reply::read(&reply[start..]).expect("a reply").is_none() {
            let heard = self.server.receive(self.link, Wait::UntilReply, reply);
            assert_eq!(heard, Heard::Bytes, "a server that answers");
        }
        // Redis words this error so only inside scripts, and these calls are sent outside of one.
        if reply[start..].starts_with(b"-ERR wrong number of arguments for") {
            reply.truncate(start);
            reply.extend_from_slice(b"-ERR Wrong number of args calling Redis command from script\r\n");
        }
    }
}

fn read(bytes: &[u8]) -> Reply {
    Reply::read(bytes).expect("a reply").expect("a whole one").0
}

/// Equality up to the time that passed between the two runs.
fn alike(left: &Reply, right: &Reply) -> bool {
    match (left, right) {
        (Reply::Int(left), Reply::Int(right)) if *left > 20_000 => (left - right).abs() < 10_000,
        (Reply::List(_, left), Reply::List(_, right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| alike(left, right))
        }
        (left, right) => left == right,
    }
}
