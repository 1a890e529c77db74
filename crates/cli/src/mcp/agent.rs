//! What the tools do for one agent.
//!
//! Knows   the subcommands of a shell, which ask the same and say the same.
//! Rule    a call that is cancelled, or whose client has gone, leaves the queue, and gives a lock back that it was granted in
//!         that moment. Nothing else is released unless it is asked for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use redlatch_client::wire::{Retry, Target, random};
use redlatch_client::{Acquire, Error, Held, Hold, HoldEvents, Locks, Trust, Waiting};
use redlatch_proto::options::Options;
use rmcp::RoleServer;
use rmcp::model::{Implementation, ProgressNotificationParam, RequestId};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::arguments::Arguments;
use super::holds::{Holds, Id};
use super::tools::{Call, Tool};
use crate::common::exit::{Failure, HELD, NO};
use crate::locks::hold::{self, Answer, HoldRequest, Step, Taker};
use crate::locks::terms::{Terms, check_lease, check_owner};
use crate::locks::texts;
use crate::locks::views::{self, Wanted};

/// The agent that a client speaks for.
pub(super) struct Agent {
    server: (Target, Trust),
    /// The name that was given as an argument; two processes may have it.
    given: Option<Vec<u8>>,
    /// The name that was made of the client's.
    made: OnceLock<Vec<u8>>,
    pub(super) holds: Arc<Holds>,
    /// The locks that are being taken.
    taking: Mutex<Taking>,
    /// The last calls that were granted a lock, each with its token, until another call names that lock.
    granted: Mutex<VecDeque<(RequestId, Id, Option<u64>)>>,
    closed: watch::Receiver<bool>,
}

pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) value: Value,
    /// Whether the answer is no.
    pub(super) is_refused: bool,
}

/// A call that the client waits for.
type Context = RequestContext<RoleServer>;

impl Agent {
    /// `closed`: true when the client has gone.
    pub(super) fn new(
        server: (Target, Trust),
        given: Option<Vec<u8>>,
        closed: watch::Receiver<bool>,
    ) -> Self {
        let (holds, taking, granted) = (Arc::new(Holds::new()), Mutex::default(), Mutex::default());
        Self { server, given, made: OnceLock::new(), holds, taking, granted, closed }
    }

    /// Does what a tool is asked for.
    ///
    /// # Errors
    /// The arguments cannot be used, the server could not be asked or refuses, or the call has been cancelled.
    pub(super) async fn answer(
        &self,
        tool: &Tool,
        arguments: &Arguments,
        context: &Context,
    ) -> Result<Outcome, Failure> {
        // What takes a lock looks after it when the call ends early; the others just end.
        let looked = async {
            match tool.call {
                Call::Explain => self.explain(arguments, context).await,
                Call::List => self.list(arguments, context).await,
                Call::Release => self.release(arguments, context).await,
                Call::Renew => self.renew(arguments, context).await,
                Call::Take => self.take(arguments, context).await,
                Call::Wait => self.wait(arguments).await,
                Call::Who => self.who(arguments).await,
            }
        };
        if tool.call == Call::Take {
            return looked.await;
        }
        tokio::select! {
            biased;
            () = self.ended(context) => Err(cancelled()),
            outcome = looked => outcome,
        }
    }

    async fn take(&self, arguments: &Arguments, context: &Context) -> Result<Outcome, Failure> {
        let terms = terms(arguments, context)?;
        let keys = terms.keys.clone();
        let wait = arguments.time("wait").unwrap_or_default();
        let request = self.request(Step::Take { terms, wait }, arguments, context)?;
        let id = (request.key.clone(), request.owner.clone());
        let alone = Alone::enter(&self.taking, &keys, &id.1).await?;

        let locks = Locks::at(self.server.0.clone(), self.server.1.clone());
        let taker = ForAgent::new(&id, locks, context, request.is_any());
        let answer = tokio::select! {
            biased;
            () = self.ended(context) => None,
            answer = request.answered(&self.server, &taker) => Some(answer?),
        };
        let Some(answer) = answer else {
            alone.ends();
            // It is given up after a while: the lock ends with its lease then.
            let _ = timeout(GIVE_BACK_MAX, self.give_back(&keys, &taker)).await;
            return Err(cancelled());
        };

        let Answer::Taken(hold) = &answer else {
            return Ok(outcome(&request, &answer));
        };
        let id = (hold.key.clone(), id.1);
        let was_held = self.holds.taken(id.clone(), hold, taker.events.into_inner(), context.peer.clone());
        self.is_known(&id);
        if !was_held {
            let mut granted = self.granted.lock();
            granted.truncate(GRANTED_MAX);
            granted.push_front((context.id.clone(), id, hold.token));
        }
        let mut outcome = outcome(&request, &answer);
        if was_held {
            outcome.text += "\nThis owner held it already: its lease begins anew.";
        }
        if !hold.is_native {
            outcome.text += &format!("\n{}", texts::PLAIN);
        }
        Ok(outcome)
    }

    /// Releases what was granted of these locks when its request was given up, after that has left the queues.
    async fn give_back(&self, keys: &[Vec<u8>], taker: &ForAgent) -> Result<(), Error> {
        for key in keys {
            self.give_back_one(&(key.clone(), taker.id.1.clone()), taker).await?;
        }
        Ok(())
    }

    async fn give_back_one(&self, id: &Id, taker: &ForAgent) -> Result<(), Error> {
        let (key, owner) = id;
        let locks = &taker.locks;
        while locks.waiters(key).await?.iter().any(|waiting| waiting.owner.as_ref() == Some(owner)) {
            sleep(GIVE_BACK_PAUSE).await;
        }
        let held = locks.who(key).await?;
        let holder = held.iter().flat_map(|held| &held.holders).find(|holder| holder.owner == *owner);
        let Some(token) = holder.and_then(|holder| holder.token) else { return Ok(()) };
        let before = *taker.before.lock();
        // Of another process with the same name, a lock is known only if a refusal has told of it.
        let is_new = match before {
            Before::Unknown => self.given.is_none(),
            Before::Held(before) => before != Some(token),
        };
        if is_new && self.holds.token(id) != Some(Some(token)) {
            locks.release_token(key, owner, token).await?;
        }
        Ok(())
    }

    /// The client has cancelled a call, whose answer it ignores, also if that is on its way.
    pub(super) async fn cancelled(&self, call: &RequestId) {
        let found = {
            let mut granted = self.granted.lock();
            let at = granted.iter().position(|(id, ..)| id == call);
            at.and_then(|at| granted.remove(at))
        };
        let Some((_, id, Some(token))) = found else { return };
        self.holds.ended(&id);
        let locks = Locks::at(self.server.0.clone(), self.server.1.clone());
        // It is given up after a while: the lock ends with its lease then.
        let _ = timeout(GIVE_BACK_MAX, locks.release_token(&id.0, &id.1, token)).await;
    }

    /// The agent names a lock, so it has the answer to the call that took it.
    fn is_known(&self, id: &Id) {
        self.granted.lock().retain(|(_, granted, _)| granted != id);
    }

    async fn renew(&self, arguments: &Arguments, context: &Context) -> Result<Outcome, Failure> {
        let lease = lease(arguments)?;
        self.ask(|token| Step::Renew { token, lease }, arguments, context).await
    }

    async fn release(&self, arguments: &Arguments, context: &Context) -> Result<Outcome, Failure> {
        self.ask(|token| Step::Release { token }, arguments, context).await
    }

    /// Renews or releases a lock: the hold with the token that the agent names, or else the hold that this process knows.
    /// Another process may have taken the lock by the same name since.
    async fn ask(
        &self,
        step: impl FnOnce(Option<u64>) -> Step,
        arguments: &Arguments,
        context: &Context,
    ) -> Result<Outcome, Failure> {
        let id = (key(arguments), self.owner(arguments, context)?);
        let known = self.holds.token(&id).flatten();
        let token = arguments.number("token").or(known);
        let request = self.request(step(token), arguments, context)?;
        self.is_known(&id);
        let answer = request.answered(&self.server, &NoTaker).await?;
        match &answer {
            Answer::Taken(hold) => self.holds.renewed(&id, hold),
            // The hold that this process knows may go on.
            _ if token != known => {}
            _ => self.holds.ended(&id),
        }
        Ok(outcome(&request, &answer))
    }

    async fn list(&self, arguments: &Arguments, context: &Context) -> Result<Outcome, Failure> {
        let wanted = match (arguments.flag("mine"), arguments.text("pattern")) {
            (true, Some(_)) => return Err(Failure::misused("mine: excludes pattern")),
            (true, None) => Wanted::OfOwner(self.owner(arguments, context)?),
            (false, pattern) => Wanted::Matching(pattern.unwrap_or("*").to_owned()),
        };

        let (mut found, is_whole) = views::listed(&self.reach().await?, &wanted).await?;

        let more = found.len().saturating_sub(LISTED_MAX);
        found.truncate(LISTED_MAX);
        let mut text = match (&wanted, found.is_empty()) {
            (Wanted::OfOwner(owner), true) => format!("{} holds no lock", texts::readable(owner)),
            (Wanted::Matching(_), true) => "no lock is held".to_owned(),
            _ => texts::table(&found, None),
        };
        if more > 0 {
            text += &format!("and {more} more: ask with a pattern");
        }
        if !is_whole {
            text += "\nNot all nodes of the cluster have answered.";
        }
        let locks: Vec<Value> = found.iter().map(texts::value).collect();
        Ok(Outcome::yes(text, json!({ "locks": locks, "more": more, "whole": is_whole })))
    }

    async fn who(&self, arguments: &Arguments) -> Result<Outcome, Failure> {
        let key = key(arguments);
        let locks = self.reach().await?;
        let held = locks.who(&key).await?;
        // A server without LOCK commands, or one that this user may not ask, does not tell.
        let mut queue = locks.waiters(&key).await.unwrap_or_default();
        queue.truncate(LISTED_MAX);

        let mut text = held_or_free(&key, held.as_ref());
        for waiting in &queue {
            text += &format!("\n  waits:  {}", waiter(waiting));
        }
        let queue: Vec<Value> = queue.iter().map(waiter_value).collect();
        let mut value =
            json!({ "free": held.is_none(), "held": held.as_ref().map(texts::value), "queue": queue });
        texts::insert(&mut value, "key", &key);
        Ok(Outcome::yes(text, value))
    }

    async fn wait(&self, arguments: &Arguments) -> Result<Outcome, Failure> {
        let key = key(arguments);
        let limit = arguments.time("timeout").unwrap_or(WAIT);

        let mut retry = Retry::within(Some(limit));
        let locks = views::reach(&self.server.0, &self.server.1, &mut retry).await?;
        let (is_free, held) = views::waited(&locks, &key, retry).await?;

        let mut value = json!({ "free": is_free, "held": held.as_ref().map(texts::value) });
        texts::insert(&mut value, "key", &key);
        let text = match is_free {
            true => held_or_free(&key, None),
            false => format!("{} is held\n{}", texts::readable(&key), held_or_free(&key, held.as_ref())),
        };
        Ok(Outcome::yes(text, value))
    }

    async fn explain(&self, arguments: &Arguments, context: &Context) -> Result<Outcome, Failure> {
        let key = key(arguments);
        let owner = self.owner(arguments, context)?;
        let locks = self.reach().await?;
        let sentences = hold::explained(&locks, &key, &owner).await?;
        let mut value = json!({ "sentences": sentences });
        texts::insert(&mut value, "key", &key);
        Ok(Outcome::yes(sentences.join("\n"), value))
    }

    async fn reach(&self) -> Result<Locks, Failure> {
        views::reach(&self.server.0, &self.server.1, &mut Retry::within(Some(Duration::ZERO))).await
    }

    fn request(&self, step: Step, arguments: &Arguments, context: &Context) -> Result<HoldRequest, Failure> {
        let key = step.key().unwrap_or_else(|| key(arguments));
        Ok(HoldRequest { key, owner: self.owner(arguments, context)?, step })
    }

    /// The name under which the caller takes locks.
    fn owner(&self, arguments: &Arguments, context: &Context) -> Result<Vec<u8>, Failure> {
        let made = || {
            let name = client_name(context.client_info().as_ref());
            format!("{name}-{:08x}", random() & 0xffff_ffff).into_bytes()
        };
        let owner = self.given.as_ref().unwrap_or_else(|| self.made.get_or_init(made));
        let owner = match arguments.text("agent") {
            Some(agent) => [owner, &b"/"[..], agent.as_bytes()].concat(),
            None => owner.clone(),
        };
        check_owner(owner)
            .map_err(|fault| Failure::misused(format!("agent: {fault}, with that of the connection")))
    }

    /// Returns when nobody waits for the answer.
    async fn ended(&self, context: &Context) {
        let mut closed = self.closed.clone();
        tokio::select! {
            () = context.ct.cancelled() => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    }
}

impl Outcome {
    fn yes(text: String, value: Value) -> Self {
        Self { text, value, is_refused: false }
    }
}

/// The locks that are being taken, each with whether its call has been cancelled and gives back what it was granted.
type Taking = HashMap<Id, bool>;

/// Locks that are being taken, each by one call at a time.
struct Alone<'a>(&'a Mutex<Taking>, Vec<Id>);

impl<'a> Alone<'a> {
    /// Waits for a call that has been cancelled.
    ///
    /// # Errors
    /// Another call takes one of them.
    async fn enter(taking: &'a Mutex<Taking>, keys: &[Vec<u8>], owner: &[u8]) -> Result<Self, Failure> {
        let ids: Vec<Id> = keys.iter().map(|key| (key.clone(), owner.to_vec())).collect();
        loop {
            {
                let mut taking = taking.lock();
                if let Some(id) = ids.iter().find(|id| taking.get(id) == Some(&false)) {
                    return Err(taken_by_another_call(id));
                }
                if !ids.iter().any(|id| taking.contains_key(id)) {
                    taking.extend(ids.iter().map(|id| (id.clone(), false)));
                    break;
                }
            }
            sleep(GIVE_BACK_PAUSE).await;
        }
        Ok(Self(taking, ids))
    }

    /// The call has been cancelled.
    fn ends(&self) {
        self.0.lock().extend(self.1.iter().map(|id| (id.clone(), true)));
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut taking = self.0.lock();
        for id in &self.1 {
            taking.remove(id);
        }
    }
}

fn taken_by_another_call((key, owner): &Id) -> Failure {
    let [key, owner] = [key, owner].map(|bytes| texts::readable(bytes));
    let fault = format!(
        "{owner} is taking {key} already, by another call: if you are another agent, say who you are by 'agent'"
    );
    Failure(HELD, fault)
}

/// What the owner held before its request.
#[derive(Clone, Copy)]
enum Before {
    Held(Option<u64>),
    Unknown,
}

/// Takes a lock for an agent that is told of it, and shows its host how the wait goes on.
struct ForAgent {
    id: Id,
    locks: Locks,
    context: Context,
    /// Whether it waits in several queues.
    any: bool,
    events: Mutex<Option<HoldEvents>>,
    before: Mutex<Before>,
    /// The task that shows the place in the queue; it ends with this.
    progress: Mutex<JoinSet<()>>,
}

impl ForAgent {
    fn new(id: &Id, locks: Locks, context: &Context, any: bool) -> Self {
        let (events, before, progress) = (Mutex::default(), Mutex::new(Before::Unknown), Mutex::default());
        Self { id: id.clone(), locks, context: context.clone(), any, events, before, progress }
    }
}

impl Taker for ForAgent {
    async fn take(&self, acquire: Acquire) -> Result<Hold, Error> {
        let (hold, events) = acquire.hold_told().await?;
        *self.events.lock() = Some(events);
        Ok(hold)
    }

    fn waits(&self, held: Option<&Held>, text: &str) {
        let holders = held.map(|held| &held.holders[..]).unwrap_or_default();
        let ours = holders.iter().find(|holder| holder.owner == self.id.1);
        *self.before.lock() = Before::Held(ours.and_then(|holder| holder.token));
        let Some(token) = self.context.meta.get_progress_token() else { return };
        let ((key, owner), locks) = (self.id.clone(), self.locks.clone());
        let (peer, any, mut text) = (self.context.peer.clone(), self.any, text.to_owned());
        let mut progress = self.progress.lock();
        // The server may have restarted, and this be another wait of the same call.
        progress.abort_all();
        progress.spawn(async move {
            for step in 1_u32.. {
                let message = ProgressNotificationParam::new(token.clone(), step.into());
                // The client may have gone.
                let _ = peer.notify_progress(message.with_message(text.clone())).await;
                sleep(PROGRESS).await;
                if !any {
                    let place = hold::place_of(&locks, &key, &owner).await.ok().flatten();
                    text = hold::waiting(&texts::readable(&key), place, None);
                }
            }
        });
    }
}

/// Stands in where nothing is taken.
struct NoTaker;

impl Taker for NoTaker {
    fn take(&self, acquire: Acquire) -> impl Future<Output = Result<Hold, Error>> + Send {
        acquire.hold()
    }

    fn waits(&self, _: Option<&Held>, _: &str) {}
}

/// What has come of a request, for a model and for programs.
fn outcome(request: &HoldRequest, answer: &Answer) -> Outcome {
    let [key, owner] = [&request.key, &request.owner].map(|bytes| texts::readable(bytes));
    let (text, is_refused) = match answer {
        Answer::Held(held) => (request.refusal(held.as_deref()), true),
        Answer::Lost(known) => (request.loss(known), true),
        Answer::Released => (format!("{key} is released"), false),
        Answer::Taken(hold) => {
            let key = texts::readable(&hold.key);
            let mut text = format!("{key} is {}\n  owner:  {owner}", request.what());
            if let Some(left) = hold.remaining() {
                let end = texts::utc(texts::unix_ms_in(left));
                text += &format!("\n  lease:  {} left, until {end}", texts::duration(texts::millis(left)));
            }
            text += &hold.token.map(|token| format!("\n  token:  {token}")).unwrap_or_default();
            (text, false)
        }
    };
    Outcome { text, value: request.value(answer), is_refused }
}

fn held_or_free(key: &[u8], held: Option<&Held>) -> String {
    let text = held.map_or_else(|| format!("{} is free", texts::readable(key)), texts::lines);
    text.trim_end().to_owned()
}

fn waiter(waiting: &Waiting) -> String {
    let owner = waiting
        .owner
        .as_ref()
        .map_or_else(|| "a client that polls".to_owned(), |owner| texts::readable(owner));
    format!("{owner}, for {}", texts::duration(waiting.waited_ms))
}

fn waiter_value(waiting: &Waiting) -> Value {
    let mut value =
        json!({ "owner": null, "waited": waiting.waited_ms, "how": waiting.how, "kind": waiting.kind });
    if let Some(owner) = &waiting.owner {
        texts::insert(&mut value, "owner", owner);
    }
    value
}

fn key(arguments: &Arguments) -> Vec<u8> {
    arguments.text("key").unwrap_or_default().as_bytes().to_vec()
}

/// The lock to take, or the locks of which one is enough.
fn terms(arguments: &Arguments, context: &Context) -> Result<Terms, Failure> {
    let (key, one_of) = (arguments.text("key"), arguments.texts("one_of"));
    let any = match (key, &one_of[..]) {
        (Some(_), []) => false,
        (None, [_, ..]) => true,
        (Some(_), _) => return Err(Failure::misused("one_of: excludes key")),
        (None, []) => return Err(Failure::misused("key: is missing, and so is one_of")),
    };
    let mut known = HashSet::new();
    let keys = key.into_iter().chain(one_of).filter(|key| known.insert(*key));
    let keys = keys.map(|key| key.as_bytes().to_vec()).collect();
    let options = match any {
        true => arguments.options().map_err(Failure::misused)?,
        false => options(arguments, context)?,
    };
    if any && !options.meta.is_empty() {
        return Err(Failure::misused("one_of: excludes why and meta"));
    }
    Ok(Terms { keys, any, lease: lease(arguments)?.unwrap_or(LEASE), options })
}

fn lease(arguments: &Arguments) -> Result<Option<Duration>, Failure> {
    let lease = arguments.time("lease").map(check_lease).transpose();
    lease.map_err(|fault| Failure::misused(format!("lease: {fault}")))
}

/// The options of the call. Those who look at the lock see in its META which agent this is.
fn options(arguments: &Arguments, context: &Context) -> Result<Options, Failure> {
    let mut options = arguments.options().map_err(Failure::misused)?;
    // What the agent says of itself wins over what the client is called.
    if options.meta.iter().all(|(field, _)| field != b"agent") {
        let client = context.client_info();
        let version = client.as_ref().map(|client| cut(&client.version)).unwrap_or_default();
        let agent = format!("{} {version}", client_name(client.as_ref()));
        options.meta.insert(0, (b"agent".to_vec(), agent.trim_end().as_bytes().to_vec()));
    }
    let checked = options.check();
    checked
        .map_err(|fault| Failure::misused(format!("meta and why: {fault}, with the name of the agent")))?;
    Ok(options)
}

/// The name that a client tells, as the beginning of an owner.
fn client_name(client: Option<&Implementation>) -> String {
    let name = client.map(|client| cut(&client.name)).unwrap_or_default();
    if name.is_empty() { "agent".to_owned() } else { name }
}

/// The beginning of a text of the client, without hidden characters.
fn cut(text: &str) -> String {
    texts::readable(text.trim().chars().take(NAME_CHARS_MAX).collect::<String>().as_bytes())
}

fn cancelled() -> Failure {
    Failure(NO, "the call was cancelled".to_owned())
}

/// The lease of a lock for which none is chosen.
const LEASE: Duration = Duration::from_secs(10 * 60);
/// How long `wait` waits if it is not told. Hosts may end calls after a minute.
const WAIT: Duration = Duration::from_secs(30);
/// How often a host is shown that a call still waits.
const PROGRESS: Duration = Duration::from_secs(10);
/// What a model is shown of a list.
const LISTED_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 64;
/// Calls that may be cancelled when they have been answered already.
const GRANTED_MAX: usize = 100;
/// How long a call that has ended looks after the lock, and how often.
const GIVE_BACK_MAX: Duration = Duration::from_secs(2);
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(5);
