//! `redlatch take`, `renew` and `release`: a lock that one process takes, and others renew and release by its owner's name.
//!
//! Rule    the answer is on the standard output, for programs; who holds the lock instead is told to people on the error
//!         stream, or is a part of the JSON.
//! Rule    no signal is caught: a request that is interrupted may have been granted, and its owner may hold the lock from an
//!         earlier one. So nothing is released unless it is asked for.

use std::pin::pin;
use std::time::Duration;

use redlatch_client::wire::{Reply, Retry, Target};
use redlatch_client::{Acquire, Error, Held, Hold, Locks, Trust};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::terms::Terms;
use super::texts;
use crate::common::exit::{self, DONE, Failure, HELD, LOST};
use crate::common::{ServerAddress, print, warn};

#[derive(Debug)]
pub(super) struct HoldOptions {
    pub(super) server: ServerAddress,
    /// Whether the answer is JSON.
    pub(super) json: bool,
    pub(super) request: HoldRequest,
}

/// The lock, by the owner's name, and what is to happen to it.
#[derive(Debug)]
pub(crate) struct HoldRequest {
    /// Of one of several the first one.
    pub(crate) key: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) step: Step,
}

#[derive(Debug)]
pub(crate) enum Step {
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

/// What has come of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Somebody else holds the lock.
    Held(Option<Box<Held>>),
    /// The owner does not hold the lock; what the server knows of that, in sentences.
    Lost(Vec<String>),
    Released,
    /// The owner holds the lock.
    Taken(Hold),
}

/// How a lock is taken, and where it is told that it is waited for.
pub(crate) trait Taker: Sync {
    fn take(&self, acquire: Acquire) -> impl Future<Output = Result<Hold, Error>> + Send;

    /// `held`: who holds the lock now.
    fn waits(&self, held: Option<&Held>, text: &str);
}

/// Takes locks for a process that ends, and tells its user.
struct ForShell;

impl Taker for ForShell {
    fn take(&self, acquire: Acquire) -> impl Future<Output = Result<Hold, Error>> + Send {
        acquire.hold()
    }

    fn waits(&self, _: Option<&Held>, text: &str) {
        warn(text);
    }
}

/// Takes, renews or releases the lock; returns the exit code.
pub(super) fn run(options: HoldOptions) -> u8 {
    exit::run(answer(options))
}

async fn answer(options: HoldOptions) -> Result<u8, Failure> {
    let server = options.server.clone().find().map_err(Failure::misused)?;
    let answer = options.request.answered(&server, &ForShell).await?;
    options.say(&answer)
}

impl HoldOptions {
    /// Writes the answer; returns the exit code.
    fn say(&self, answer: &Answer) -> Result<u8, Failure> {
        let Self { json, request, .. } = self;
        let code = match answer {
            Answer::Held(_) => HELD,
            Answer::Lost(_) => LOST,
            Answer::Released | Answer::Taken(_) => DONE,
        };
        if matches!(answer, Answer::Taken(hold) if !hold.is_native) && request.what() == "taken" {
            warn(texts::PLAIN);
        }
        let text = match answer {
            _ if *json => format!("{}\n", texts::json_text(&request.value(answer))),
            Answer::Held(held) => {
                let held = held.as_deref();
                return Err(Failure(code, request.refusal(held) + &texts::force(held)));
            }
            Answer::Lost(known) => return Err(Failure(code, request.loss(known))),
            Answer::Released => format!("{} is released\n", texts::readable(&request.key)),
            Answer::Taken(hold) => {
                let token = hold.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
                let key = request.is_any().then(|| format!(" {}", texts::readable(&hold.key)));
                let key = key.unwrap_or_default();
                format!("{token} {}{key}\n", texts::readable(&request.owner))
            }
        };
        print(text.as_bytes())?;
        Ok(code)
    }
}

impl Step {
    /// How a lock is taken; `None`: none is.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        match self {
            Self::Take { terms, .. } => Some(terms),
            Self::Release { .. } | Self::Renew { .. } => None,
        }
    }

    /// The key to take: of one of several the first one.
    pub(crate) fn key(&self) -> Option<Vec<u8>> {
        self.terms()?.keys.first().cloned()
    }
}

impl HoldRequest {
    /// Asks the server, again if it does not serve, for as long as the request may wait.
    ///
    /// # Errors
    /// The server could not be asked, or refuses.
    pub(crate) async fn answered<T: Taker>(
        &self,
        server: &(Target, Trust),
        taker: &T,
    ) -> Result<Answer, Failure> {
        let wait = match &self.step {
            Step::Take { wait, .. } => *wait,
            Step::Release { .. } | Step::Renew { .. } => Duration::ZERO,
        };
        let locks = Locks::at(server.0.clone(), server.1.clone()).telling(texts::tell_retry);
        // What a call does not outlast by itself: the look at who holds the lock, before the wait.
        let mut retry = Retry::within(Some(wait)).telling(Some(texts::tell_retry));
        loop {
            let error = match self.ask(&locks, retry.left().unwrap_or_default(), taker).await {
                Err(Error::Held(held)) => return Ok(Answer::Held(held)),
                Err(error) => error,
                Ok(answer) => return Ok(answer),
            };
            retry.again(error).await?;
        }
    }

    async fn ask<T: Taker>(&self, locks: &Locks, left: Duration, taker: &T) -> Result<Answer, Error> {
        let (key, owner) = (&self.key, &self.owner);
        let is_done = match &self.step {
            Step::Take { terms, .. } => {
                let hold = self.take(locks, terms, left, taker).await?;
                return Ok(Answer::Taken(hold));
            }
            Step::Renew { token, lease } => match locks.renew(key, owner, *token, *lease).await? {
                Some(hold) => return Ok(Answer::Taken(hold)),
                None => false,
            },
            Step::Release { token: Some(token) } => locks.release_token(key, owner, *token).await?,
            Step::Release { token: None } => locks.release([&key[..]], &owner[..]).await?,
        };
        match is_done {
            true => Ok(Answer::Released),
            false => Ok(Answer::Lost(explained(locks, key, owner).await.unwrap_or_default())),
        }
    }

    /// Takes the lock. If it is held, tells who holds it and, while it waits, its place in the queue.
    async fn take<T: Taker>(
        &self,
        locks: &Locks,
        terms: &Terms,
        wait: Duration,
        taker: &T,
    ) -> Result<Hold, Error> {
        let until = Instant::now() + wait;
        let ask = |wait| taker.take(terms.acquire(locks, &self.owner, Some(wait)));
        let held = match ask(Duration::ZERO).await {
            Err(Error::Held(held)) if !wait.is_zero() => held,
            answer => return answer,
        };
        let mut answer = pin!(ask(until.saturating_duration_since(Instant::now())));
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            place = self.place_in_queue(locks) => {
                taker.waits(held.as_deref(), &waiting(&terms.name(), place, held.as_deref()));
            }
        }
        answer.await
    }

    /// Where in the queue this request is, from 1 on; `None` if it stands in several, or the server does not tell.
    async fn place_in_queue(&self, locks: &Locks) -> Option<usize> {
        if self.is_any() {
            return None;
        }
        for _ in 0..PLACE_TRIES {
            match place_of(locks, &self.key, &self.owner).await {
                Ok(None) => {}
                place => return place.ok()?,
            }
            // The request is on its way.
            sleep(PLACE_PAUSE).await;
        }
        None
    }

    /// Whether one of several keys is asked for.
    pub(crate) fn is_any(&self) -> bool {
        self.step.terms().is_some_and(|terms| terms.any)
    }

    /// Says that another owner has the lock.
    pub(crate) fn refusal(&self, held: Option<&Held>) -> String {
        match self.step.terms() {
            Some(terms) => terms.held("not taken", held),
            None => texts::held("not taken", &self.key, held),
        }
    }

    /// What happens to the lock if all goes well.
    pub(crate) fn what(&self) -> &'static str {
        match self.step {
            Step::Release { .. } => "released",
            Step::Renew { .. } => "renewed",
            Step::Take { .. } => "taken",
        }
    }

    /// Says that the owner does not hold the lock, and what the server knows of it.
    pub(crate) fn loss(&self, known: &[String]) -> String {
        let [key, owner] = [&self.key, &self.owner].map(|bytes| texts::readable(bytes));
        let token = match self.step {
            Step::Release { token } | Step::Renew { token, .. } => token,
            Step::Take { .. } => None,
        };
        let token = token.map(|token| format!(" with the token {token}")).unwrap_or_default();
        let known: String = known.iter().map(|sentence| format!("\n  {sentence}")).collect();
        format!("not {}: {owner} does not hold {key}{token}{known}", self.what())
    }

    /// The answer as JSON, with the owner, and with the key if that is known.
    pub(crate) fn value(&self, answer: &Answer) -> Value {
        let what = self.what();
        let mut value = match answer {
            Answer::Held(held) => json!({ what: false, "held": held.as_deref().map(texts::value) }),
            Answer::Lost(known) => json!({ what: false, "explained": known }),
            Answer::Released => json!({ what: true }),
            Answer::Taken(hold) => json!({
                what: true,
                "token": hold.token,
                "lease": hold.lease.map(texts::millis),
                "until": hold.remaining().map(texts::unix_ms_in),
            }),
        };
        match answer {
            Answer::Taken(hold) => texts::insert(&mut value, "key", &hold.key),
            _ if self.is_any() => {}
            _ => texts::insert(&mut value, "key", &self.key),
        }
        texts::insert(&mut value, "owner", &self.owner);
        value
    }
}

/// Says that a lock is waited for. `name`: the lock, for people.
pub(crate) fn waiting(name: &str, place: Option<usize>, held: Option<&Held>) -> String {
    let place = place.map(|place| format!(", at place {place} of its queue")).unwrap_or_default();
    let lines = held.map(texts::lines).unwrap_or_default();
    let text = format!("waiting for {name}{place}\n{lines}");
    text.trim_end().to_owned()
}

/// Where in the queue an owner is, from 1 on; `None` if it does not wait.
///
/// # Errors
/// The server does not tell.
pub(crate) async fn place_of(locks: &Locks, key: &[u8], owner: &[u8]) -> Result<Option<usize>, Error> {
    let waiters = locks.waiters(key).await?;
    let is_ours = |owned: Option<&Vec<u8>>| owned.is_some_and(|owned| owned == owner);
    Ok(waiters.iter().position(|waiting| is_ours(waiting.owner.as_ref())).map(|place| place + 1))
}

/// What has happened to the lock, in sentences; the server may have no LOCK commands, or not tell this user.
pub(crate) async fn explained(locks: &Locks, key: &[u8], owner: &[u8]) -> Result<Vec<String>, Error> {
    let reply = locks.open_for(key).await?.call(&[b"LOCK.EXPLAIN", key, b"OWNER", owner]).await?;
    Ok(reply.items().iter().filter_map(Reply::text).map(texts::readable).collect())
}

/// How often, and how long after each other, a request is looked for in the queue.
const PLACE_TRIES: usize = 20;
const PLACE_PAUSE: Duration = Duration::from_millis(20);
