//! What attackers do to a server whose locks others use. Each function is one attack.
//!
//! Knows   the right of the attackers: keys and channels that begin with `attack:`, MONITOR, INFO, LOCK.BREAK.
//! Rule    an attack ends by itself, and returns the connections that go on with it while they are open. Its errors are of
//!         the connections, which may be refused when attacks come together, or say what the server should have refused.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::scope;

use redis_protocol::resp2::types::OwnedFrame;

use super::client::LOCKS;
use crate::support::wire::Link;

type Outcome = io::Result<Vec<Link>>;
type Attack = (&'static str, fn(SocketAddr) -> Outcome);

pub(crate) const ATTACKS: &[Attack] = &[
    #[cfg(feature = "lua")]
    ("scripts that loop", loop_in_scripts),
    #[cfg(feature = "lua")]
    ("scripts that need all memory", fill_scripts),
    #[cfg(feature = "lua")]
    ("scripts with numbers beyond those of C", cross_edges),
    ("scripts that ask for undeclared keys", ask_for_undeclared_keys),
    ("requests for a thousand locks, and a circle", wait_for_locks),
    ("connections up to maxclients, and half of a login", flood),
    ("wrong passwords", guess),
    ("values up to maxmemory", fill_memory),
    ("numbers at the edge", send_edges),
    ("requests for what they may not do", overreach),
    ("readers that do not read", read_nothing),
    ("subscribers that do not read", subscribe_and_read_nothing),
    ("monitors that do not read", monitor_and_read_nothing),
    ("large transactions", queue_much),
];

/// A connection with the rights of an attacker.
pub(crate) fn break_in(server: SocketAddr) -> io::Result<Link> {
    let mut link = Link::to(server)?;
    expect(&mut link, &["AUTH", ATTACKER, ATTACKER_PASSWORD], |frame| is_status(frame, b"OK"))?;
    Ok(link)
}

fn is_status(frame: &OwnedFrame, word: &[u8]) -> bool {
    matches!(frame, OwnedFrame::SimpleString(text) if text == word)
}

fn is_error(frame: &OwnedFrame, start: &str) -> bool {
    matches!(frame, OwnedFrame::Error(text) if text.starts_with(start))
}

fn expect(link: &mut Link, words: &[&str], is_right: impl Fn(&OwnedFrame) -> bool) -> io::Result<()> {
    let answer = link.ask(words)?;
    if is_right(&answer) { Ok(()) } else { Err(io::Error::other(format!("{words:?}: {answer:?}"))) }
}

/// Some read nothing, some hold every shard, some ask for more and more keys. SCRIPT KILL ends each.
#[cfg(feature = "lua")]
fn loop_in_scripts(server: SocketAddr) -> Outcome {
    for script in [
        "while true do end",
        "redis.call('GET', 'attack:undeclared') while true do end",
        "local n = 0 while true do n = n + 1 redis.call('GET', 'attack:' .. n % 1000) end",
        "while true do pcall(function() while true do end end) end",
    ] {
        let (mut looper, mut killer) = (break_in(server)?, break_in(server)?);
        looper.send(&["EVAL", script, "0"])?;
        let is_over = AtomicBool::new(false);
        let (answer, killed) = scope(|scope| {
            let kills = scope.spawn(|| {
                // A kill that comes before the script finds none, or ends another one.
                while !is_over.load(Relaxed) {
                    killer.ask(&["SCRIPT", "KILL"])?;
                }
                io::Result::Ok(())
            });
            let answer = looper.next();
            is_over.store(true, Relaxed);
            (answer, kills.join().expect("a killer that does not panic"))
        });
        killed?;
        let answer = answer?;
        if !is_error(&answer, "ERR Script killed by user") {
            return Err(io::Error::other(format!("{script}: {answer:?}")));
        }
    }
    Ok(Vec::new())
}

#[cfg(feature = "lua")]
fn fill_scripts(server: SocketAddr) -> Outcome {
    let mut link = break_in(server)?;
    for script in [
        "local t = {} while true do t[#t + 1] = string.rep('x', 100000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e10)",
    ] {
        expect(&mut link, &["EVAL", script, "0"], |frame| matches!(frame, OwnedFrame::Error(_)))?;
    }
    Ok(vec![link])
}

/// Ranges and sizes that wrap around as a number of C. The answers are for the tests of scripts: here the server goes on.
#[cfg(feature = "lua")]
fn cross_edges(server: SocketAddr) -> Outcome {
    let mut link = break_in(server)?;
    for edge in
        ["2147483647", "2147483648", "3e9", "2^53", "2^63", "1/0", "0/0", "'2147483648'", "-2147483648"]
    {
        for call in
            ["unpack({}, N)", "unpack({}, N, 5)", "unpack({}, 0, N)", "('x'):rep(N)", "('x'):sub(N, -N)"]
        {
            let script = format!("return {{pcall(function() return {} end)}}", call.replace('N', edge));
            link.ask(&["EVAL", &script, "0"])?;
            link.ask(&["EVAL_RO", &script, "0"])?;
        }
    }
    Ok(vec![link])
}

fn ask_for_undeclared_keys(server: SocketAddr) -> Outcome {
    let mut link = break_in(server)?;
    let script = "for n = 1, 100 do redis.call('SET', 'attack:undeclared:' .. n, n, 'PX', 1000) end return \
                  redis.call('GET', 'attack:undeclared:7')";
    for _ in 0..30 {
        // Its own keys first, which it declares, then those of others.
        link.ask(&["EVAL", script, "1", "attack:declared"])?;
        for lock in LOCKS {
            let steal = format!("redis.call('GET', 'attack:x') return redis.call('DEL', '{lock}')");
            expect(&mut link, &["EVAL", &steal, "0"], |frame| matches!(frame, OwnedFrame::Error(_)))?;
        }
    }
    Ok(vec![link])
}

/// Requests that wait for a thousand locks each, and owners of whom each waits for the lock of the next.
fn wait_for_locks(server: SocketAddr) -> Outcome {
    let mut links = Vec::new();
    let mut holder = break_in(server)?;
    // The connections of an earlier attack may not have ended yet.
    expect(&mut holder, &["LOCK.ACQUIRE", "attack:held", "holder", "SESSION", "WAIT", "60000"], |frame| {
        matches!(frame, OwnedFrame::Array(_))
    })?;
    let keys: Vec<String> = (0..999).map(|n| format!("attack:many:{n}")).collect();
    for n in 0..30 {
        let (mut link, owner) = (break_in(server)?, format!("owner-{n}"));
        let mut words = vec!["LOCK.MACQUIRE", "1000", "attack:held"];
        words.extend(keys.iter().map(String::as_str));
        words.extend([owner.as_str(), "SESSION", "WAIT", "600000"]);
        link.send(&words)?;
        links.push(link);
    }
    let names: Vec<[String; 2]> = (0..10).map(|n| [format!("attack:{n}"), format!("round-{n}")]).collect();
    for [lock, owner] in &names {
        let mut link = break_in(server)?;
        link.ask(&["LOCK.ACQUIRE", lock, owner, "SESSION", "WAIT", "60000"])?;
        links.push(link);
    }
    for (n, [_, owner]) in names.iter().enumerate() {
        let [lock, _] = &names[(n + 1) % names.len()];
        // One of these closes the circle and is refused; nobody knows which.
        links[30 + n].send(&["LOCK.ACQUIRE", lock, owner, "SESSION", "WAIT", "600000"])?;
    }
    links.push(holder);
    Ok(links)
}

fn flood(server: SocketAddr) -> Outcome {
    let mut links = Vec::new();
    for n in 0..=MAXCLIENTS {
        let mut link = Link::to(server)?;
        match link.ask(&["PING"]) {
            Ok(answer) if is_error(&answer, "NOAUTH") => {}
            Ok(answer) if is_error(&answer, "ERR max number of clients") => return Ok(links),
            Ok(answer) => return Err(io::Error::other(format!("PING: {answer:?}"))),
            // One that is refused may be closed before its request arrives.
            Err(_) => return Ok(links),
        }
        if n % 2 == 0 {
            link.send_bytes(b"*3\r\n$4\r\nAUTH\r\n$8\r\natta")?;
        }
        links.push(link);
    }
    Err(io::Error::other(format!("{} connections, and none was refused", links.len())))
}

/// The first guesses are answered. The others wait for as long as their connections are open.
fn guess(server: SocketAddr) -> Outcome {
    let mut links = Vec::new();
    for n in 0..50 {
        let mut link = Link::from(GUESSERS_ADDRESS, server)?;
        link.send(&["AUTH", ["attacker", "honest", "default"][n % 3], "guess"])?;
        link.send(&["HELLO", "3", "AUTH", "honest", "guess"])?;
        links.push(link);
    }
    Ok(links)
}

fn fill_memory(server: SocketAddr) -> Outcome {
    let (mut link, value) = (break_in(server)?, "v".repeat(64 * 1024));
    let (key, most) = (|n: usize| format!("attack:value:{n}"), MAXMEMORY / value.len());
    let refused = (0..=most).find(|n| {
        let answer = link.ask(&["SET", &key(*n), &value]);
        answer.is_ok_and(|answer| is_error(&answer, "OOM "))
    });
    // The clients need memory for their next locks.
    for n in 0..=most {
        link.ask(&["DEL", &key(n)])?;
    }
    refused.map(|_| vec![link]).ok_or_else(|| io::Error::other("values take more memory than there is"))
}

fn send_edges(server: SocketAddr) -> Outcome {
    let mut link = break_in(server)?;
    for number in ["-9223372036854775808", "-1", "0", "9223372036854775807", "18446744073709551616", "1e300"]
    {
        for words in [
            &["SET", "attack:n", "1", "PX", number][..],
            &["INCRBY", "attack:n", number],
            &["PEXPIRE", "attack:n", number],
            &["SETRANGE", "attack:n", number, ""],
            &["LOCK.ACQUIRE", "attack:lock", "owner", "LEASE", number],
            &["LOCK.ACQUIRE", "attack:lock", "owner", "LEASE", "10", "WAIT", number],
            &["LOCK.MACQUIRE", number, "attack:lock", "owner"],
            &["LOCK.BREAK", "attack:lock", "TOKEN", number],
            &["LOCK.GUARD", "attack:resource", number],
            &["EVAL", "return 1", number],
            &["SCAN", number, "COUNT", number],
            &["SELECT", number],
            &["SELECT", "0"],
            &["DEL", "attack:lock", "attack:n", "attack:resource"],
            &["INFO", "everything"],
        ] {
            link.ask(words)?;
        }
    }
    expect(&mut link, &["PING"], |frame| is_status(frame, b"PONG"))?;
    Ok(vec![link])
}

/// Everything that would harm the locks of others, or all clients. A free lock of their own has nobody to break.
fn overreach(server: SocketAddr) -> Outcome {
    let mut link = break_in(server)?;
    expect(&mut link, &["LOCK.BREAK", "attack:free", "TOKEN", "1"], |frame| {
        *frame == OwnedFrame::Integer(0)
    })?;
    for lock in LOCKS {
        for words in [
            &["DEL", lock][..],
            &["SET", lock, "mine"],
            &["PEXPIRE", lock, "1"],
            &["GETDEL", lock],
            &["RENAME", "attack:x", lock],
            &["LOCK.BREAK", lock, "TOKEN", "1"],
            &["LOCK.RELEASE", lock, "mine"],
            &["LOCK.MACQUIRE", "2", "attack:x", lock, "mine"],
            &["EVAL", "return redis.call('DEL', KEYS[1])", "1", lock],
            &["FLUSHALL"],
            &["FLUSHDB"],
            &["SWAPDB", "0", "1"],
            &["CLIENT", "PAUSE", "100000"],
            &["CLIENT", "KILL", "TYPE", "normal"],
            &["CLIENT", "UNBLOCK", "1"],
            &["CONFIG", "SET", "maxclients", "1"],
            &["ACL", "SETUSER", ATTACKER, "~*"],
            &["SHUTDOWN", "NOSAVE"],
        ] {
            expect(&mut link, words, |frame| is_error(frame, "NOPERM"))?;
        }
    }
    Ok(vec![link])
}

fn read_nothing(server: SocketAddr) -> Outcome {
    let mut links = vec![break_in(server)?, break_in(server)?];
    expect(&mut links[0], &["SET", "attack:big", &"v".repeat(MIB), "PX", "1000"], |frame| {
        is_status(frame, b"OK")
    })?;
    for link in &mut links {
        // The server may close it meanwhile: that is its limit for unread output.
        let _ = (0..50).try_for_each(|_| link.send(&["GET", "attack:big"]));
    }
    Ok(links)
}

fn subscribe_and_read_nothing(server: SocketAddr) -> Outcome {
    let mut links = vec![break_in(server)?, break_in(server)?, break_in(server)?];
    links.iter_mut().try_for_each(|link| link.ask(&["SUBSCRIBE", "attack:news"]).map(drop))?;
    let (mut publisher, message) = (break_in(server)?, "m".repeat(MIB));
    for _ in 0..64 {
        if publisher.ask(&["PUBLISH", "attack:news", &message])? == OwnedFrame::Integer(0) {
            return Ok(links);
        }
    }
    Err(io::Error::other("a subscriber that does not read is kept"))
}

fn monitor_and_read_nothing(server: SocketAddr) -> Outcome {
    let mut links = vec![break_in(server)?, break_in(server)?];
    links.iter_mut().try_for_each(|link| expect(link, &["MONITOR"], |frame| is_status(frame, b"OK")))?;
    let (mut talker, text) = (break_in(server)?, "t".repeat(MIB / 8));
    (0..100).try_for_each(|_| talker.ask(&["ECHO", &text]).map(drop))?;
    Ok(links)
}

/// One transaction that is executed, one that is refused for a lock of others, and one that stays open.
fn queue_much(server: SocketAddr) -> Outcome {
    let mut links = Vec::new();
    for last in [&["GET", "attack:queued"][..], &["DEL", LOCKS[0]], &[]] {
        let mut link = break_in(server)?;
        link.ask(&["MULTI"])?;
        for n in 0..1_000 {
            let key = format!("attack:queued:{}", n % 100);
            link.ask(&["SET", &key, &"v".repeat(1_000), "PX", "1000"])?;
        }
        if !last.is_empty() {
            link.ask(last)?;
            let answer = link.ask(&["EXEC"])?;
            let is_executed = matches!(&answer, OwnedFrame::Array(answers) if answers.len() == 1_001);
            if is_executed != (last[0] == "GET") {
                return Err(io::Error::other(format!("EXEC after {last:?}: {answer:?}")));
            }
        }
        links.push(link);
    }
    Ok(links)
}

pub(crate) const ATTACKER: &str = "attacker";
pub(crate) const ATTACKER_PASSWORD: &str = "attacker-password";
/// Those who guess passwords delay logins from their own address only.
const GUESSERS_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
pub(crate) const MAXCLIENTS: usize = 200;
pub(crate) const MAXMEMORY: usize = 48 * MIB;
const MIB: usize = 1024 * 1024;
