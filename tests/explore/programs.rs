//! Commands that are explored: each takes a lock, does its work, and releases the lock. All but the first have one bug.
//!
//! Rule    they are tests, so that this program can run itself. Without a server in REDIS_URL they do nothing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Deletes the lock if this owner holds it.
const RELEASE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const KEY: &str = "orders";
const LEASE_MS: &str = "30000";
/// How often a server that restarts is asked again.
const TRIES: u32 = 20_000;

/// A connection to the server of REDIS_URL.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect() -> io::Result<Self> {
        let address = std::env::var("REDIS_URL").unwrap_or_default();
        TcpStream::connect(address.trim_start_matches("redis://")).map(|stream| Self(BufReader::new(stream)))
    }

    /// The reply as text: what is behind the type, or the bytes of a string.
    fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let count = words.matches("\r\n").count() / 2;
        self.0.get_mut().write_all(format!("*{count}\r\n{words}").as_bytes())?;
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("$", length)) if !length.starts_with('-') => {
                let mut text = vec![0; length.parse::<usize>().map_err(io::Error::other)? + 2];
                self.0.read_exact(&mut text)?;
                Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
            }
            Some(("$", _)) => Ok("nil".to_owned()),
            Some(("*", count)) => {
                let count = count.parse::<usize>().map_err(io::Error::other)?;
                (0..count)
                    .map(|_| {
                        self.line()?;
                        self.line()
                    })
                    .collect::<io::Result<Vec<_>>>()
                    .map(|all| all.join(" "))
            }
            Some((_, text)) => Ok(text.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    fn take(&mut self, owner: &str) -> io::Result<bool> {
        Ok(self.ask(&["SET", KEY, owner, "NX", "PX", LEASE_MS])? == "OK")
    }

    /// Releases the lock; false if it was lost.
    fn release(&mut self, owner: &str) -> io::Result<bool> {
        Ok(self.ask(&["EVAL", RELEASE, "1", KEY, owner])? == "1")
    }

    fn work(&mut self) -> io::Result<()> {
        self.ask(&["INCR", "work"]).map(drop)
    }
}

/// Whether there is a server, because this program is explored.
fn is_explored() -> bool {
    std::env::var("REDIS_URL").is_ok() && std::env::var("REDLATCH_INJECTED").is_ok()
}

fn owner() -> String {
    format!("process-{}", std::process::id())
}

/// Takes the lock. If nobody knows whether that has happened, the lock is given back before it fails.
fn take_or_clean_up(owner: &str) -> io::Result<Client> {
    let mut client = Client::connect()?;
    match client.take(owner) {
        Ok(true) => Ok(client),
        Ok(false) => Err(io::Error::other("somebody else holds it")),
        Err(error) => {
            // The server may be about to restart.
            let released =
                (0..TRIES).any(|_| Client::connect().and_then(|mut client| client.release(owner)).is_ok());
            assert!(released, "the server stays away");
            Err(error)
        }
    }
}

#[test]
#[ignore = "a program that the tests of explore run"]
fn right() {
    if !is_explored() {
        return;
    }
    let mut client = take_or_clean_up(&owner()).unwrap();
    client.work().unwrap();
    assert!(client.release(&owner()).unwrap(), "the lock was lost while the work was done");
}

#[test]
#[ignore = "a program that the tests of explore run"]
fn forgets_a_lock_whose_reply_is_lost() {
    if !is_explored() {
        return;
    }
    let mut client = Client::connect().unwrap();
    assert!(client.take(&owner()).unwrap());
    client.work().unwrap();
    assert!(client.release(&owner()).unwrap());
}

#[test]
#[ignore = "a program that the tests of explore run"]
fn deletes_the_lock_of_the_next_holder() {
    if !is_explored() {
        return;
    }
    let mut client = take_or_clean_up(&owner()).unwrap();
    client.work().unwrap();
    client.ask(&["DEL", KEY]).unwrap();
}

#[test]
#[ignore = "a program that the tests of explore run"]
fn ignores_that_its_lock_was_lost() {
    if !is_explored() {
        return;
    }
    let mut client = take_or_clean_up(&owner()).unwrap();
    client.work().unwrap();
    client.release(&owner()).unwrap();
}

#[test]
#[ignore = "a program that the tests of explore run"]
fn measures_its_lease_with_the_wall_clock() {
    if !is_explored() {
        return;
    }
    let seconds = |client: &mut Client| {
        let time = client.ask(&["TIME"]).unwrap();
        time.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let mut client = take_or_clean_up(&owner()).unwrap();
    let end = seconds(&mut Client::connect().unwrap()) + 30;
    client.work().unwrap();
    let is_lost = !client.release(&owner()).unwrap();
    assert!(!is_lost && seconds(&mut client) <= end, "the lease was over");
}

#[test]
#[ignore = "a program that the tests of explore run"]
fn waits_for_its_own_lock() {
    if !is_explored() {
        return;
    }
    let mut client = Client::connect().unwrap();
    // The first reply may be lost, and then the lock is its own.
    while !client.take(&owner()).unwrap_or(false) {
        client = Client::connect().unwrap();
        std::thread::yield_now();
    }
    client.work().unwrap();
    assert!(client.release(&owner()).unwrap());
}
