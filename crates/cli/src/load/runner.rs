//! How a load runs: its threads, the connections of their clients, its start and its end.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redlatch_platform::timer::Timer;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use super::client::{Client, Shared};
use super::figures::Figures;
use super::ledger::Ledger;
use super::live::Live;
use super::plan::{Dialect, Plan};
use super::report::Report;
use super::schedule::Schedule;
use super::session::Session;

/// Why a load has not begun.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The plan does not fit together, or not to the server.
    Misfit(String),
    /// A server cannot be reached.
    NoServer(String),
    /// A server refuses the login; its text.
    Refused(String),
}

/// Opens all connections, calls `on_start`, and runs the load until it is done or [`Live::stop`] is called. Blocks.
///
/// # Errors
/// The plan is out of bounds, or a connection cannot be opened at the start. Later the same is counted.
pub fn run(plan: Plan, live: &Arc<Live>, on_start: impl FnOnce()) -> Result<Report, Failure> {
    plan.check().map_err(Failure::Misfit)?;
    let plan = Arc::new(plan);
    let keys: Arc<[String]> = (0..plan.keys.count()).map(|n| plan.keys.name(n)).collect();
    let common = Common { ledger: Arc::new(Ledger::new(keys.len())), plan, keys, live: live.clone() };
    let (go, gone) = watch::channel(None::<Instant>);
    thread::scope(|scope| {
        let (tell, ready) = mpsc::channel();
        let threads: Vec<_> = (0..common.plan.threads)
            .map(|thread| {
                let (common, tell, gone) = (&common, tell.clone(), gone.clone());
                scope.spawn(move || common.run(thread, &tell, gone))
            })
            .collect();
        drop((tell, gone));
        let opened: Result<Vec<Option<String>>, Failure> = ready.iter().take(threads.len()).collect();
        let Ok(servers) = opened else {
            // Threads that wait for the start end without it.
            drop(go);
            return Err(opened.expect_err("it is no list of servers"));
        };
        on_start();
        let start = Instant::now();
        go.send_replace(Some(start));
        let mut all = Ended { figures: Figures::new(common.plan.clients), unbegun: 0, end: start };
        for thread in threads {
            if let Some(ended) = thread.join().expect("a thread of the load ends") {
                all.figures.add(&ended.figures);
                all.unbegun += ended.unbegun;
                all.end = all.end.max(ended.end);
            }
        }
        let server = servers.into_iter().flatten().next();
        Ok(Report::new(
            &common.plan,
            server,
            all.figures,
            all.unbegun,
            all.end.saturating_duration_since(start),
        ))
    })
}

struct Common {
    plan: Arc<Plan>,
    keys: Arc<[String]>,
    ledger: Arc<Ledger>,
    live: Arc<Live>,
}

struct Ended {
    figures: Figures,
    /// Acquisitions of an open loop that should have begun.
    unbegun: u64,
    end: Instant,
}

type Opened = Result<Option<String>, Failure>;

impl Common {
    /// Runs the clients of one thread. `None` if the load does not begin.
    fn run(
        &self,
        thread: usize,
        tell: &mpsc::Sender<Opened>,
        mut go: watch::Receiver<Option<Instant>>,
    ) -> Option<Ended> {
        let started = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match started {
            Ok(runtime) => runtime,
            Err(error) => return refuse(tell, &error),
        };
        LocalSet::new().block_on(&runtime, async {
            let timer = Timer::new().map_err(|error| Failure::Misfit(format!("there is no timer: {error}")));
            let opened = match timer {
                Ok(timer) => self.open(thread).await.map(|opened| (opened, timer)),
                Err(failure) => Err(failure),
            };
            let (mut sessions, timer) = match opened {
                Ok(((sessions, server), timer)) => {
                    // The receiver waits for every thread.
                    let _ = tell.send(Ok(server));
                    (sessions, timer)
                }
                Err(failure) => {
                    let _ = tell.send(Err(failure));
                    return None;
                }
            };
            let start = (*go.wait_for(Option::is_some).await.ok()?)?;
            let (ended, abandoned) = self.load(thread, start, timer, sessions.split_off(1)).await;
            let own = &mut sessions[0].1;
            // A server that does not answer keeps them.
            let _ = tokio::time::timeout(ENDING_MAX, self.release(own, &abandoned)).await;
            self.each_key(thread, async |key| own.clean(key).await).await;
            Some(ended)
        })
    }

    /// Opens the connections of the thread's clients, by their numbers, after one of the thread itself.
    async fn open(&self, thread: usize) -> Result<(Vec<(usize, Session)>, Option<String>), Failure> {
        let refused = |error: redlatch_client::Error| match error {
            redlatch_client::Error::Unsupported(_) => Failure::Misfit(error.to_string()),
            redlatch_client::Error::Refused(text) => Failure::Refused(text),
            error => Failure::NoServer(error.to_string()),
        };
        let mut own = Session::open(&self.plan).await.map_err(refused)?;
        let server = own.server().await;
        if let Some(server) = &server
            && self.plan.dialect == Dialect::Native
            && !server.starts_with("redlatch")
        {
            return Err(Failure::Misfit(format!(
                "--dialect native takes LOCK commands, which {server} lacks"
            )));
        }
        self.each_key(thread, async |key| own.prepare(key).await).await;
        let mut sessions = vec![(usize::MAX, own)];
        let numbers: Vec<usize> = (thread..self.plan.clients).step_by(self.plan.threads).collect();
        for some in numbers.chunks(OPENED_AT_ONCE) {
            let mut opening = JoinSet::new();
            for number in some {
                let (number, plan) = (*number, self.plan.clone());
                opening.spawn_local(async move { (number, Session::open(&plan).await) });
            }
            while let Some(opened) = opening.join_next().await {
                let (number, session) = opened.expect("opening does not panic");
                sessions.push((number, session.map_err(refused)?));
            }
        }
        Ok((sessions, server))
    }

    async fn load(
        &self,
        thread: usize,
        start: Instant,
        timer: Timer,
        sessions: Vec<(usize, Session)>,
    ) -> (Ended, Vec<(usize, String)>) {
        let plan = &self.plan;
        // Threads take turns: the first beginning of each is another one.
        let rate = plan.rate.map(|rate| rate / plan.threads as f64);
        let offset = plan.rate.map_or(0.0, |rate| thread as f64 / rate);
        let schedule = Schedule::new(start + Duration::from_secs_f64(offset), rate);
        let shared = Rc::new(Shared {
            plan: plan.clone(),
            keys: self.keys.clone(),
            ledger: self.ledger.clone(),
            live: self.live.clone(),
            figures: RefCell::new(Figures::new(plan.clients)),
            schedule: RefCell::new(schedule),
            timer,
            abandoned: RefCell::default(),
            start,
        });
        let mut clients = JoinSet::new();
        for (number, session) in sessions {
            clients.spawn_local(Client::new(shared.clone(), number, session).run());
        }
        let mut stop = self.live.stopped();
        let end = start + plan.duration;
        let is_done = tokio::select! {
            () = all_of(&mut clients) => true,
            _ = stop.wait_for(|stop| *stop) => false,
            () = tokio::time::sleep_until(end.into()) => false,
        };
        let end = Instant::now();
        let unbegun = if is_done { 0 } else { shared.schedule.borrow().due(end) };
        if !is_done {
            self.live.stop();
            // A server that does not answer keeps its clients from ending.
            let _ = tokio::time::timeout(ENDING_MAX, all_of(&mut clients)).await;
            clients.abort_all();
        }
        let (figures, abandoned) = (shared.figures.borrow().clone(), shared.abandoned.take());
        (Ended { figures, unbegun, end }, abandoned)
    }

    /// Releases what was granted while its client gave up. A release may hand the lock to another of these, until the server
    /// has noticed that all their connections are closed.
    async fn release(&self, own: &mut Session, abandoned: &[(usize, String)]) {
        let mut was_held = self.plan.dialect == Dialect::Native;
        while was_held {
            was_held = false;
            for (key, owner) in abandoned {
                was_held |= own.release(&self.keys[*key], owner).await.was_held == Some(true);
            }
        }
    }

    /// Does something with each key of the thread.
    async fn each_key(&self, thread: usize, mut act: impl AsyncFnMut(&str)) {
        if self.plan.dialect == Dialect::List {
            for key in self.keys.iter().skip(thread).step_by(self.plan.threads) {
                act(key).await;
            }
        }
    }
}

async fn all_of(clients: &mut JoinSet<()>) {
    while clients.join_next().await.is_some() {}
}

fn refuse(tell: &mpsc::Sender<Opened>, error: &io::Error) -> Option<Ended> {
    let _ = tell.send(Err(Failure::NoServer(format!("cannot start: {error}"))));
    None
}

/// Connections that are opened at once: fewer than a server lets wait to be accepted.
const OPENED_AT_ONCE: usize = 100;
/// How long the clients may take to release what they hold.
const ENDING_MAX: Duration = Duration::from_secs(6);
