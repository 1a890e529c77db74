//! A service that ships orders, each under a lock. Without a bug it is right.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use redis::{Client, Connection, RedisResult, cmd};

const LEASE_MS: u64 = 30_000;
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return \
                      redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
const LOST: &str = "the lock was lost";

/// The service, with its bug.
struct Orders<'a> {
    client: Client,
    connection: Connection,
    bug: &'a str,
}

/// Ships two.
pub(crate) fn ship_orders(url: &str, bug: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::open(url)?;
    let mut orders = Orders { connection: client.get_connection()?, client, bug };
    (1..=2).try_for_each(|order| orders.ship(&format!("lock:order:{order}"), &format!("process-{order}")))
}

impl Orders<'_> {
    fn ship(&mut self, key: &str, owner: &str) -> Result<(), Box<dyn Error>> {
        self.take(key, owner)?;
        if let Err(error) = self.work(key, owner) {
            self.give_back(key, owner)?;
            return Err(error);
        }
        if !self.release(key, owner)? && self.looks() {
            return Err(LOST.into());
        }
        Ok(())
    }

    fn take(&mut self, key: &str, owner: &str) -> Result<(), Box<dyn Error>> {
        let mut request = cmd("SET");
        request.arg(key).arg(owner).arg("NX").arg("PX").arg(LEASE_MS);
        match request.query::<Option<String>>(&mut self.connection) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("somebody else ships it".into()),
            Err(error) => {
                // It may have been granted.
                if self.bug != "forgets" {
                    self.give_back(key, owner)?;
                }
                Err(error.into())
            }
        }
    }

    /// Asks until a server answers: it may be about to restart.
    fn give_back(&self, key: &str, owner: &str) -> Result<(), Box<dyn Error>> {
        for _ in 0..1_000 {
            let answer =
                self.client.get_connection().and_then(|mut to| evaluate(&mut to, RELEASE, &[key, owner]));
            if answer.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(5));
        }
        Err("the server stays away".into())
    }

    /// Releases the lock; false if it was lost.
    fn release(&mut self, key: &str, owner: &str) -> RedisResult<bool> {
        if self.bug == "looks" {
            let holder: Option<String> = cmd("GET").arg(key).query(&mut self.connection)?;
            if holder.as_deref() != Some(owner) {
                return Ok(false);
            }
        }
        let deleted: u64 = match self.bug {
            "deletes" | "looks" => cmd("DEL").arg(key).query(&mut self.connection)?,
            _ => evaluate(&mut self.connection, RELEASE, &[key, owner])?,
        };
        Ok(deleted == 1)
    }

    /// Is done while the lock is held. At its end the lease begins anew.
    fn work(&mut self, key: &str, owner: &str) -> Result<(), Box<dyn Error>> {
        let begun = self.seconds()?;
        cmd("INCR").arg("shipped").query::<u64>(&mut self.connection)?;
        let extended = evaluate(&mut self.connection, EXTEND, &[key, owner, &LEASE_MS.to_string()])?;
        let is_late = self.bug == "wall-clock" && self.seconds()? > begun + LEASE_MS / 1_000;
        if is_late || extended == 0 && self.looks() {
            return Err(LOST.into());
        }
        Ok(())
    }

    /// The time of the server.
    fn seconds(&mut self) -> RedisResult<u64> {
        let (seconds, _) = cmd("TIME").query::<(u64, u64)>(&mut self.connection)?;
        Ok(seconds)
    }

    /// Whether it reads what the server says of its lock.
    fn looks(&self) -> bool {
        self.bug != "ignores"
    }
}

/// The integer that a script of one key returns.
fn evaluate(connection: &mut Connection, script: &str, words: &[&str]) -> RedisResult<u64> {
    cmd("EVAL").arg(script).arg(1).arg(words).query(connection)
}
