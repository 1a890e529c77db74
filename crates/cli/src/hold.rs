//! `redlatch take`, `renew` and `release`: a lock that one process takes, and others renew and release by its owner's name.
//!
//! Rule    the answer is on the standard output, for programs; who holds the lock instead is told to people on the error
//!         stream, or is a part of the JSON.
//! Rule    no signal is caught: a request that is interrupted may have been granted, and its owner may hold the lock from an
//!         earlier one. So nothing is released unless it is asked for.

use std::pin::pin;
use std::time::Duration;

use redlatch_client::wire::Reply;
use redlatch_client::{Error, Held, Hold, Locks};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::exit::{self, Failure, LOST, NOT_ACQUIRED};
use super::place::Place;
use super::retry::Retry;
use super::terms::Terms;
use super::{print, texts, warn};

/// The lock, by the owner's name, and what is to happen to it.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) place: Place,
    /// Whether the answer is JSON.
    pub(super) json: bool,
    pub(super) key: Vec<u8>,
    pub(super) owner: Vec<u8>,
    pub(super) step: Step,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Of the hold with this token, if there is one.
    Release {
        token: Option<u64>,
    },
    /// Without a lease: that which the lock had.
    Renew {
        token: Option<u64>,
        lease: Option<Duration>,
    },
    Take {
        terms: Terms,
        wait: Duration,
    },
}

/// Takes, renews or releases the lock; returns the exit code.
pub(super) fn run(options: Options) -> u8 {
    exit::run(answer(options))
}

async fn answer(options: Options) -> Result<u8, Failure> {
    let server = options.place.clone().find().map_err(Failure::misused)?;
    let wait = match &options.step {
        Step::Take { wait, .. } => *wait,
        Step::Release { .. } | Step::Renew { .. } => Duration::ZERO,
    };
    let mut retry = Retry::within(Some(wait));
    let answer = retry.ask(&server, async |locks, left| options.ask(locks, left).await).await;
    match answer {
        Ok(code) => Ok(code?),
        Err(Error::Held(held)) if options.json => {
            let value = json!({ "taken": false, "held": held.as_deref().map(texts::value) });
            options.say(value, "")?;
            Ok(NOT_ACQUIRED)
        }
        Err(Error::Held(held)) => {
            Err(Failure(NOT_ACQUIRED, texts::refusal("not taken", &options.key, held.as_deref())))
        }
        Err(error) => Err(Failure::of_lock(&error, retry.has_answered())),
    }
}

impl Options {
    /// Asks the server, and writes its answer; returns the exit code.
    async fn ask(&self, locks: &Locks, left: Option<Duration>) -> Result<Result<u8, Failure>, Error> {
        let (key, owner) = (&self.key, &self.owner);
        Ok(match &self.step {
            Step::Take { terms, .. } => {
                let hold = self.take(locks, terms, left.unwrap_or_default()).await?;
                if !hold.is_native {
                    warn(texts::PLAIN);
                }
                self.say_held("taken", &hold)
            }
            Step::Renew { token, lease } => match locks.renew(key, owner, *token, *lease).await? {
                Some(hold) => self.say_held("renewed", &hold),
                None => self.say_lost(locks, "renewed", *token).await,
            },
            Step::Release { token } => {
                let is_released = match token {
                    Some(token) => locks.release_token(key, owner, *token).await?,
                    None => locks.release([&key[..]], &owner[..]).await?,
                };
                match is_released {
                    true => {
                        let text = format!("{} is released\n", texts::readable(key));
                        self.say(json!({ "released": true }), &text).map(|()| 0)
                    }
                    false => self.say_lost(locks, "released", *token).await,
                }
            }
        })
    }

    /// Takes the lock. If it is held, tells people who holds it and, while it waits, its place in the queue.
    async fn take(&self, locks: &Locks, terms: &Terms, wait: Duration) -> Result<Hold, Error> {
        let until = Instant::now() + wait;
        let ask = |wait| terms.acquire(locks, &self.owner, Some(wait)).hold();
        let held = match ask(Duration::ZERO).await {
            Err(Error::Held(held)) if !wait.is_zero() => held,
            answer => return answer,
        };
        let mut answer = pin!(ask(until.saturating_duration_since(Instant::now())));
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            place = self.place_in_queue(locks) => self.tell_wait(held.as_deref(), place),
        }
        answer.await
    }

    /// Where in the queue this request is, from 1 on; `None` if the server does not tell.
    async fn place_in_queue(&self, locks: &Locks) -> Option<usize> {
        for _ in 0..PLACE_TRIES {
            let waiters = locks.waiters(&self.key).await.ok()?;
            let is_ours = |owner: Option<&Vec<u8>>| owner == Some(&self.owner);
            if let Some(place) = waiters.iter().position(|waiting| is_ours(waiting.owner.as_ref())) {
                return Some(place + 1);
            }
            // The request is on its way.
            sleep(PLACE_PAUSE).await;
        }
        None
    }

    fn tell_wait(&self, held: Option<&Held>, place: Option<usize>) {
        let place = place.map(|place| format!(", at place {place} of its queue")).unwrap_or_default();
        let lines = held.map(texts::lines).unwrap_or_default();
        let text = format!("waiting for {}{place}\n{lines}", texts::readable(&self.key));
        warn(text.trim_end());
    }

    /// Writes the token and the owner; returns the exit code.
    fn say_held(&self, what: &str, hold: &Hold) -> Result<u8, Failure> {
        let value = json!({
            what: true,
            "token": hold.token,
            "lease": hold.lease.map(texts::millis),
            "until": hold.remaining().map(texts::unix_ms_in),
        });
        let token = hold.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        self.say(value, &format!("{token} {}\n", texts::readable(&self.owner)))?;
        Ok(0)
    }

    /// Says that the owner does not hold the lock, and what the server knows of it; returns the exit code.
    async fn say_lost(&self, locks: &Locks, what: &str, token: Option<u64>) -> Result<u8, Failure> {
        let known = explained(locks, &self.key, &self.owner).await.unwrap_or_default();
        if self.json {
            self.say(json!({ what: false, "explained": known }), "")?;
            return Ok(LOST);
        }
        let [key, owner] = [&self.key, &self.owner].map(|bytes| texts::readable(bytes));
        let token = token.map(|token| format!(" with the token {token}")).unwrap_or_default();
        let known: String = known.iter().map(|sentence| format!("\n  {sentence}")).collect();
        Err(Failure(LOST, format!("not {what}: {owner} does not hold {key}{token}{known}")))
    }

    /// Writes the answer, with the key and the owner if it is JSON.
    fn say(&self, mut value: Value, text: &str) -> Result<(), Failure> {
        if !self.json {
            print(text.as_bytes())?;
            return Ok(());
        }
        texts::insert(&mut value, "key", &self.key);
        texts::insert(&mut value, "owner", &self.owner);
        print(format!("{}\n", texts::json_text(&value)).as_bytes())?;
        Ok(())
    }
}

/// What has happened to the lock, in sentences; the server may have no LOCK commands, or not tell this user.
async fn explained(locks: &Locks, key: &[u8], owner: &[u8]) -> Result<Vec<String>, Error> {
    let reply = locks.open_for(key).await?.call(&[b"LOCK.EXPLAIN", key, b"OWNER", owner]).await?;
    Ok(reply.items().iter().filter_map(Reply::text).map(texts::readable).collect())
}

/// How often, and how long after each other, a request is looked for in the queue.
const PLACE_TRIES: usize = 20;
const PLACE_PAUSE: Duration = Duration::from_millis(20);
