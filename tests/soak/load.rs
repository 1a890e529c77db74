//! What the clients of a soak do: each role for as long as it is told to, as fast as it can.
//!
//! Owns    the roles and the errors they take for one: anything but the answers named here.
//! Rule    every key has a lease and every connection an end, so that nothing may stay behind.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::OwnedFrame;

use crate::dice::Dice;
use crate::wire::Link;

/// What one client has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    /// The longest that it waited for an answer, or for all answers of a pipeline.
    pub(crate) longest: Duration,
}

/// A client: the server, its dice and when it ends; how much it did.
pub(crate) type Role = fn(SocketAddr, &mut Dice, Instant) -> io::Result<Done>;

/// Every role with how many clients have it.
pub(crate) const ROLES: &[(&str, usize, Role)] = &[
    ("locks, 16 requests at a time", 3, locks),
    ("connections", 2, connections),
    ("scripts", 1, scripts),
    ("values", 1, values),
    ("waits", 2, waits),
    ("subscribers", 2, subscribers),
];

/// What subscribers wait for and everybody sends now and then.
const CHANNEL: &str = "soak:news";

struct Client {
    server: SocketAddr,
    link: Link,
    done: Done,
}

impl Client {
    fn to(server: SocketAddr) -> io::Result<Self> {
        Ok(Self { server, link: Link::to(server)?, done: Done::default() })
    }

    /// Another connection in place of this one.
    fn reconnect(&mut self) -> io::Result<()> {
        self.link = Link::to(self.server)?;
        Ok(())
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        let mut answers = self.ask_all(&[words.to_vec()])?;
        Ok(answers.remove(0))
    }

    /// Sends all of them, then waits for all answers.
    fn ask_all(&mut self, requests: &[Vec<&str>]) -> io::Result<Vec<OwnedFrame>> {
        let start = Instant::now();
        for words in requests {
            self.link.send(words)?;
        }
        let answers = requests.iter().map(|words| self.answer(words)).collect();
        self.done.requests += requests.len() as u64;
        self.done.longest = self.done.longest.max(start.elapsed());
        answers
    }

    fn answer(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        match self.link.next()? {
            OwnedFrame::Error(error) => Err(io::Error::other(format!("{words:?} was refused: {error}"))),
            answer => Ok(answer),
        }
    }
}

fn name(dice: &mut Dice, what: &str) -> String {
    format!("soak:{what}:{}", dice.below(50_000))
}

/// A lease, mostly short.
fn lease(dice: &mut Dice) -> String {
    let most = dice.pick(&[20, 200, 1_000]);
    (1 + dice.below(most)).to_string()
}

/// Takes, extends and gives back locks.
fn locks(server: SocketAddr, dice: &mut Dice, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let names: Vec<String> = (0..4).map(|_| name(dice, "lock")).collect();
        let (px, more) = (lease(dice), lease(dice));
        let mut requests = Vec::new();
        for name in &names {
            requests.push(vec!["SET", name, "me", "NX", "PX", &px]);
            requests.push(vec!["EVAL", EXTEND, "1", name, "me", &more]);
            requests.push(vec!["PTTL", name]);
            if dice.one_in(2) {
                requests.push(vec!["EVAL", RELEASE, "1", name, "me"]);
            }
        }
        client.ask_all(&requests)?;
    }
    Ok(client.done)
}

/// Comes, does little, and goes: politely, without a word, or in the middle of one.
fn connections(server: SocketAddr, dice: &mut Dice, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let (name, px) = (name(dice, "brief"), lease(dice));
        client.ask(&["CLIENT", "SETNAME", "brief"])?;
        client.ask(&["SET", &name, "v", "PX", &px])?;
        match dice.below(3) {
            0 => drop(client.ask(&["QUIT"])?),
            1 => {}
            _ => {
                let link = std::mem::replace(&mut client.link, Link::to(server)?);
                link.ask_and_cut(&["SUBSCRIBE", CHANNEL])?;
                continue;
            }
        }
        client.reconnect()?;
    }
    Ok(client.done)
}

/// Sends scripts that nobody has sent before, and must be interpreted.
fn scripts(server: SocketAddr, dice: &mut Dice, end: Instant) -> io::Result<Done> {
    static TEXTS: AtomicU64 = AtomicU64::new(0);
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let number = TEXTS.fetch_add(1, Relaxed).to_string();
        let text = format!(
            "local t = {{}} for i = 1, 50 do t[i] = i .. ':{number}' end \
             redis.call('SET', KEYS[1], table.concat(t), 'PX', ARGV[1]) return t[50]"
        );
        let (name, px) = (name(dice, "script"), lease(dice));
        let answer = client.ask(&["EVAL", &text, "1", &name, &px])?;
        let expected = OwnedFrame::BulkString(format!("50:{number}").into_bytes());
        if answer != expected {
            return Err(io::Error::other(format!("script {number} answered {answer:?}")));
        }
    }
    Ok(client.done)
}

/// Makes hashes, lists, sets and sorted sets grow, and lets them end.
fn values(server: SocketAddr, dice: &mut Dice, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    let long = "x".repeat(200);
    while Instant::now() < end {
        let names = ["hash", "list", "set", "sorted"].map(|what| name(dice, what));
        let [hash, list, set, sorted] = names.each_ref().map(String::as_str);
        let (field, px) = (dice.below(500).to_string(), lease(dice));
        let mut requests = vec![
            vec!["HSET", hash, &field, &long, "other", "v"],
            vec!["HPEXPIRE", hash, &px, "FIELDS", "1", &field],
            vec!["RPUSH", list, &long, &field],
            vec!["SADD", set, &field, &long],
            vec!["ZADD", sorted, &field, &long, "1", &field],
            vec!["MULTI"],
            vec!["LLEN", list],
            vec!["ZRANGE", sorted, "0", "-1"],
            vec!["EXEC"],
        ];
        requests.extend([hash, list, set, sorted].map(|name| vec!["PEXPIRE", name, &px]));
        requests.push(vec!["PUBLISH", CHANNEL, &long]);
        client.ask_all(&requests)?;
    }
    Ok(client.done)
}

/// Waits for what others push, some of it in vain; one in twenty goes while it waits.
fn waits(server: SocketAddr, dice: &mut Dice, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let queue = format!("soak:queue:{}", dice.below(4));
        match dice.below(20) {
            0 => {
                let link = std::mem::replace(&mut client.link, Link::to(server)?);
                link.ask_and_cut(&["BLPOP", &queue, "0"])?;
            }
            1..=9 => drop(client.ask(&["BLPOP", &queue, "0.02"])?),
            _ => {
                let requests = vec![vec!["RPUSH", &queue, "job"], vec!["PEXPIRE", &queue, "100"]];
                client.ask_all(&requests)?;
            }
        }
    }
    Ok(client.done)
}

/// Listens for a while, hears what comes, and leaves.
fn subscribers(server: SocketAddr, dice: &mut Dice, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        client.ask(&["SUBSCRIBE", CHANNEL])?;
        // A message, or the echo of a PING of its own, so that it never waits for others in vain.
        for _ in 0..dice.below(30) {
            client.ask(&["PING"])?;
        }
        client.reconnect()?;
    }
    Ok(client.done)
}

const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";
