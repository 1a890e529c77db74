//! Servers that are broken on purpose: a proxy in front of a correct server changes requests or replies.
//!
//! Owns    a port, and a thread per connection. It handles one request at a time: the clients never pipeline.
//! Rule    each fault leaves most calls alone, so that the run continues and the checker must find the rest.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::checker::Law;
use super::client::{ACQUIRE, EXTEND, RELEASE};
use crate::support::wire::Link;

/// The defect of the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// It answers an extension with success and does nothing.
    ExtendsNothing,
    /// It deletes a lock soon after it was granted.
    DropsKeys,
    /// It lets a lease last for half its time.
    EndsEarly,
    /// It gives a session a lease of some milliseconds.
    EndsSessions,
    /// It ignores NX while another client holds the lock.
    ForgetsNx,
    /// It hands a lock that is held to the next who is ready to wait.
    HandsOverEarly,
    /// It lets a lease last for 400 ms more.
    KeepsLong,
    /// It does not notice that a connection has ended.
    KeepsSessions,
    /// It releases a lock without comparing the token.
    ReleasesAnybodys,
    /// It answers a release with success and does nothing.
    ReleasesNothing,
    /// It repeats the number of the previous grant.
    RepeatsFences,
    /// It repeats the token of an earlier native grant.
    RepeatsTokens,
    /// It tells a refused client that the client holds the lock.
    SaysYes,
}

/// Every fault with the law that must find it.
pub(crate) const FAULTS: &[(Fault, Law)] = &[
    (Fault::DropsKeys, Law::Endurance),
    (Fault::EndsEarly, Law::Endurance),
    (Fault::EndsSessions, Law::Endurance),
    (Fault::ExtendsNothing, Law::Endurance),
    (Fault::ForgetsNx, Law::Exclusion),
    (Fault::HandsOverEarly, Law::Exclusion),
    (Fault::KeepsLong, Law::Promptness),
    (Fault::KeepsSessions, Law::Promptness),
    (Fault::ReleasesAnybodys, Law::Endurance),
    (Fault::ReleasesNothing, Law::Release),
    (Fault::RepeatsFences, Law::Fencing),
    (Fault::RepeatsTokens, Law::Fencing),
    (Fault::SaysYes, Law::Exclusion),
];

/// The address of a broken server, which runs until this value is dropped.
pub(crate) struct Broken {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Broken {
    pub(crate) fn before(server: SocketAddr, fault: Fault) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let ends = Arc::clone(&is_over);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ends.load(Relaxed) {
                    break;
                }
                let (calls, ends) = (Arc::clone(&calls), Arc::clone(&ends));
                thread::spawn(move || {
                    let Ok(mut server) = Link::to(server) else { return };
                    // Ends when either side has closed.
                    drop(stand_between(client, &mut server, fault, &calls));
                    while fault == Fault::KeepsSessions && !ends.load(Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                    }
                });
            }
        });
        Ok(Self { address, is_over })
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
    }
}

fn stand_between(client: TcpStream, server: &mut Link, fault: Fault, calls: &AtomicU64) -> io::Result<()> {
    let mut client = Link::over(client)?;
    loop {
        let mut words = words(client.next()?);
        if words.first().is_some_and(|name| name == "HELLO") {
            // Both sides are read as RESP2.
            client.write(&OwnedFrame::Error("NOPROTO unsupported protocol version".to_owned()))?;
            continue;
        }
        let is_turn = calls.fetch_add(1, Relaxed).is_multiple_of(4);
        if is_turn {
            twist(fault, &mut words);
        }
        let asked: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut answer = server.ask(&asked)?;
        if is_turn {
            twist_answer(fault, &asked, &mut answer, server)?;
        }
        client.write(&answer)?;
    }
}

fn words(frame: OwnedFrame) -> Vec<String> {
    let OwnedFrame::Array(words) = frame else { return Vec::new() };
    words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// The request that the correct server receives instead.
fn twist(fault: Fault, words: &mut Vec<String>) {
    let script = words.get(1).map_or("", String::as_str);
    let is_set = words.first().is_some_and(|name| name == "SET");
    match fault {
        Fault::EndsSessions => replace(words, "SESSION", &["LEASE", "5"]),
        Fault::ForgetsNx if is_set => words.retain(|word| word != "NX" && word != "GET"),
        Fault::EndsEarly | Fault::KeepsLong if is_set || script == ACQUIRE || script == EXTEND => {
            let Some(lease) = words.last_mut() else { return };
            let lease_ms: u64 = lease.parse().unwrap_or(0);
            *lease =
                if fault == Fault::KeepsLong { lease_ms + 400 } else { lease_ms.div_ceil(2) }.to_string();
        }
        Fault::ReleasesAnybodys if script == RELEASE => {
            *words = vec!["DEL".to_owned(), words[3].clone()];
        }
        Fault::ReleasesAnybodys if words.first().is_some_and(|name| name == "LOCK.RELEASE") => {
            *words = vec!["DEL".to_owned(), words[1].clone()];
        }
        Fault::ExtendsNothing if script == EXTEND => *words = vec!["EXISTS".to_owned(), words[3].clone()],
        Fault::ReleasesNothing if script == RELEASE => *words = vec!["EXISTS".to_owned(), words[3].clone()],
        _ => {}
    }
}

fn replace(words: &mut Vec<String>, word: &str, with: &[&str]) {
    if let Some(at) = words.iter().position(|own| own == word) {
        words.splice(at..=at, with.iter().map(|word| (*word).to_owned()));
    }
}

/// The reply that the client receives instead; carries out the fault's side effects.
fn twist_answer(fault: Fault, asked: &[&str], answer: &mut OwnedFrame, server: &mut Link) -> io::Result<()> {
    let is_granted = asked[0] == "SET" && *answer == OwnedFrame::SimpleString(b"OK".to_vec());
    match (fault, &*answer) {
        (Fault::DropsKeys, _) if is_granted => drop(server.ask(&["DEL", asked[1]])?),
        (Fault::SaysYes, OwnedFrame::Null) if asked.contains(&"NX") && !asked.contains(&"GET") => {
            *answer = OwnedFrame::SimpleString(b"OK".to_vec());
        }
        (Fault::HandsOverEarly, OwnedFrame::Null) if asked[0] == "LOCK.ACQUIRE" => {
            let holder = server.ask(&["GET", asked[1]])?;
            let token = server.ask(&["LOCK.TOKEN", asked[1], holder.as_str().unwrap_or_default()])?;
            if !matches!(token, OwnedFrame::Integer(_)) {
                // The lock has ended meanwhile.
                return Ok(());
            }
            let word = |word: &str| OwnedFrame::BulkString(word.as_bytes().to_vec());
            let grant = [word("token"), token, word("lease"), OwnedFrame::Integer(1)];
            *answer = OwnedFrame::Array([&grant[..], &[word("waited"), OwnedFrame::Integer(0)]].concat());
        }
        (Fault::RepeatsTokens, OwnedFrame::Array(grant)) if asked[0] == "LOCK.ACQUIRE" => {
            let [name, OwnedFrame::Integer(token), rest @ ..] = grant.as_slice() else { return Ok(()) };
            let (name, token) = (name.clone(), OwnedFrame::Integer(1.max(*token - 20)));
            *answer = OwnedFrame::Array([&[name, token], rest].concat());
        }
        (Fault::RepeatsFences, OwnedFrame::Integer(fence))
            if asked.get(1) == Some(&ACQUIRE) && *fence > 1 =>
        {
            *answer = OwnedFrame::Integer(fence - 1);
        }
        _ => {}
    }
    Ok(())
}
