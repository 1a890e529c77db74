//! Servers that are broken on purpose: a good one, and in front of it somebody who changes what is said.
//!
//! Owns    a port, and a thread for each connection; request by request, as the clients here never send ahead.
//! Rule    each fault leaves most calls alone, so that the run goes on and the check has to look.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::checker::Law;
use super::client::{ACQUIRE, EXTEND, RELEASE};
use crate::support::wire::Link;

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// It answers an extension with success and does nothing.
    ExtendsNothing,
    /// It deletes a lock soon after it was granted.
    DropsKeys,
    /// It lets a lease last for half its time.
    EndsEarly,
    /// It stores although there is NX and somebody holds the lock.
    ForgetsNx,
    /// It lets a lease last for 400 ms more.
    KeepsLong,
    /// It gives a lock back without comparing.
    ReleasesAnybodys,
    /// It answers a release with success and does nothing.
    ReleasesNothing,
    /// It gives a grant the number of the one before.
    RepeatsFences,
    /// It tells who was refused that the lock is his.
    SaysYes,
}

/// Every fault with the law that must find it.
pub(crate) const FAULTS: &[(Fault, Law)] = &[
    (Fault::DropsKeys, Law::Endurance),
    (Fault::EndsEarly, Law::Endurance),
    (Fault::ExtendsNothing, Law::Endurance),
    (Fault::ForgetsNx, Law::Exclusion),
    (Fault::KeepsLong, Law::Promptness),
    (Fault::ReleasesAnybodys, Law::Endurance),
    (Fault::ReleasesNothing, Law::Release),
    (Fault::RepeatsFences, Law::Fencing),
    (Fault::SaysYes, Law::Exclusion),
];

/// The address on which a broken server answers, for as long as it is not dropped.
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
                let calls = Arc::clone(&calls);
                // It ends when either side has closed.
                thread::spawn(move || drop(stand_between(client, server, fault, &calls)));
            }
        });
        Ok(Self { address, is_over })
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // The accepting thread looks up once more.
        drop(TcpStream::connect(self.address));
    }
}

fn stand_between(client: TcpStream, server: SocketAddr, fault: Fault, calls: &AtomicU64) -> io::Result<()> {
    let (mut client, mut server) = (Link::over(client)?, Link::to(server)?);
    loop {
        let mut words = words(client.next()?);
        let is_turn = calls.fetch_add(1, Relaxed).is_multiple_of(4);
        if is_turn {
            twist(fault, &mut words);
        }
        let asked: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut answer = server.ask(&asked)?;
        if is_turn {
            twist_answer(fault, &asked, &mut answer, &mut server)?;
        }
        client.write(&answer)?;
    }
}

fn words(frame: OwnedFrame) -> Vec<String> {
    let OwnedFrame::Array(words) = frame else { return Vec::new() };
    words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// The request that the good server gets to see instead.
fn twist(fault: Fault, words: &mut Vec<String>) {
    let script = words.get(1).map_or("", String::as_str);
    let is_set = words.first().is_some_and(|name| name == "SET");
    match fault {
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
        Fault::ExtendsNothing if script == EXTEND => *words = vec!["EXISTS".to_owned(), words[3].clone()],
        Fault::ReleasesNothing if script == RELEASE => *words = vec!["EXISTS".to_owned(), words[3].clone()],
        _ => {}
    }
}

/// The answer that the client gets to see instead, and what else is done.
fn twist_answer(fault: Fault, asked: &[&str], answer: &mut OwnedFrame, server: &mut Link) -> io::Result<()> {
    let is_granted = asked[0] == "SET" && *answer == OwnedFrame::SimpleString(b"OK".to_vec());
    match (fault, &*answer) {
        (Fault::DropsKeys, _) if is_granted => drop(server.ask(&["DEL", asked[1]])?),
        (Fault::SaysYes, OwnedFrame::Null) if asked.contains(&"NX") && !asked.contains(&"GET") => {
            *answer = OwnedFrame::SimpleString(b"OK".to_vec());
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
