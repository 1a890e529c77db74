//! The crew of a worker: the connections dealt out to it, seen to together.
//!
//! Owns    these connections, and who of them has been called: by its socket, its outbox, its clock.
//! Rule    all who are ready go through each stage together: first all are read from, then the requests of all are carried
//!         out, then the replies of all are sent. So a client that waits for several connections is woken once, and not
//!         by each; what a stage needs is in the processor's cache for the next connection; the memory where keys
//!         lie is fetched for many at once; and one reading of the clock serves all.
//! Rule    a panic ends the connection that caused it, and no other.
//! Rule    the runtime has its turn after [`ROUND_MAX`] connections, whoever else is ready.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use slab::Slab;
use tokio::runtime::Handle;

use super::desk::Desk;
use crate::engine::Engine;
use crate::state::metrics::Metrics;

/// Connections of one round.
const ROUND_MAX: usize = 64;

/// One connection, stage by stage.
pub(super) trait Member: Send {
    /// It has its place: this is how its outbox calls it.
    fn watch(&mut self, waker: &Waker);

    /// Receives what has come, if anything `may_have`, and counts it; how many requests are known then, as far as it has
    /// looked.
    ///
    /// # Errors
    /// When the connection is over.
    fn receive(&mut self, may_have: bool, traffic: &mut Traffic, cx: &mut Context<'_>) -> io::Result<usize>;

    /// Where its requests are carried out, if that may be now.
    fn desk_mut(&mut self) -> Option<&mut Desk>;

    /// Sends what there is to send, and counts it. Ready when another round may find something to do, or with an error when
    /// the connection is over; otherwise it will be called.
    fn answer(&mut self, traffic: &mut Traffic, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Bytes of one round: counters that all threads share learn of many connections at once.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Traffic {
    /// The counters learn of it.
    pub(super) fn settle(&mut self, metrics: &Metrics) {
        let Self { received, sent } = std::mem::take(self);
        metrics.input_bytes.add(received);
        metrics.output_bytes.add(sent);
    }
}

/// Makes a connection in the runtime of its worker; `None` when its stream cannot be had.
type Newcomer = Box<dyn FnOnce() -> Option<Box<dyn Member>> + Send>;

/// The crew of one worker, as the others see it.
pub(super) struct Roster(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    newcomers: Vec<Newcomer>,
    /// Berths that have been called, each once.
    called: Vec<usize>,
    /// Of each berth whether it has been, and what for.
    states: Vec<Call>,
    crew: Option<Waker>,
    /// Nobody will come any more.
    is_closed: bool,
}

/// Why a connection is called.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
enum Call {
    /// It is not.
    #[default]
    Not,
    /// There is mail for it, or it has more to do. Of a hundred who listen to a channel nobody is read from for that.
    Mail,
    /// Something may have come through its stream, which will not say so again.
    News,
}

impl Call {
    /// There is another reason; true when it is the first.
    fn add(&mut self, why: Self) -> bool {
        let is_first = *self == Self::Not;
        *self = why.max(*self);
        is_first
    }
}

impl Calls {
    fn call(&mut self, at: usize, why: Call) {
        if self.states[at].add(why) {
            self.called.push(at);
        }
    }
}

impl Roster {
    /// A crew in that runtime, which ends with it, or once it is closed and everybody has gone.
    pub(super) fn muster(engine: Engine, runtime: &Handle) -> Arc<Self> {
        let roster = Arc::new(Self(Mutex::default()));
        let crew = Crew::new(engine, Arc::clone(&roster));
        // It bounds its turns itself: a task that has used up its turn is told that nothing has come.
        runtime.spawn(tokio::task::unconstrained(crew));
        roster
    }

    /// Takes a connection in.
    pub(super) fn enter(&self, newcomer: impl FnOnce() -> Option<Box<dyn Member>> + Send + 'static) {
        self.tell(|calls| calls.newcomers.push(Box::new(newcomer)));
    }

    /// Nobody will come any more.
    pub(super) fn close(&self) {
        self.tell(|calls| calls.is_closed = true);
    }

    /// The crew is woken by the first to call, wherever that is: the others are seen to in the same round.
    fn tell(&self, say: impl FnOnce(&mut Calls)) {
        let mut calls = self.0.lock();
        say(&mut calls);
        let crew = calls.crew.take();
        drop(calls);
        if let Some(crew) = crew {
            crew.wake();
        }
    }
}

/// Calls one connection, for its stream, its thread or its clock.
struct Bell {
    roster: Arc<Roster>,
    /// Its berth. Who had it before may call whoever has it now, who then finds nothing to do.
    at: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.roster.tell(|calls| calls.call(self.at, Call::News));
    }
}

/// Calls one connection for its outbox.
struct MailBell(Bell);

impl Wake for MailBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.roster.tell(|calls| calls.call(self.0.at, Call::Mail));
    }
}

/// The place of a connection, and how it is called.
struct Berth {
    member: Box<dyn Member>,
    waker: Waker,
    /// Why it has its turn, when it has; from then on it may be called again.
    call: Call,
}

struct Crew {
    engine: Engine,
    roster: Arc<Roster>,
    berths: Slab<Berth>,
    /// Whose turn comes next.
    called: VecDeque<usize>,
    /// Whose turn it is, and how many requests are known of each.
    round: Vec<(usize, usize)>,
}

impl Crew {
    fn new(engine: Engine, roster: Arc<Roster>) -> Self {
        Self { engine, roster, berths: Slab::new(), called: VecDeque::new(), round: Vec::new() }
    }

    /// Takes note of all who have come and been called; true when nobody will come any more.
    fn gather(&mut self, waker: &Waker) -> bool {
        let mut calls = self.roster.0.lock();
        let Calls { newcomers, called, states, crew, is_closed } = &mut *calls;
        for at in called.drain(..) {
            let why = std::mem::take(&mut states[at]);
            call(&mut self.called, &mut self.berths, at, why);
        }
        let (newcomers, is_closed) = (std::mem::take(newcomers), *is_closed);
        *crew = Some(waker.clone());
        drop(calls);
        for newcomer in newcomers {
            if let Some(Some(member)) = guarded(newcomer) {
                self.admit(member);
            }
        }
        is_closed
    }

    fn admit(&mut self, mut member: Box<dyn Member>) {
        let berth = self.berths.vacant_entry();
        let at = berth.key();
        let bell = || Bell { roster: Arc::clone(&self.roster), at };
        let mut calls = self.roster.0.lock();
        if calls.states.len() == at {
            calls.states.push(Call::Not);
        }
        drop(calls);
        member.watch(&Waker::from(Arc::new(MailBell(bell()))));
        berth.insert(Berth { member, waker: Waker::from(Arc::new(bell())), call: Call::Not });
        call(&mut self.called, &mut self.berths, at, Call::News);
    }

    /// All stages, for those who have been called first.
    fn round(&mut self) {
        let mut round = std::mem::take(&mut self.round);
        let mut traffic = Traffic::default();
        for at in self.called.drain(..self.called.len().min(ROUND_MAX)) {
            if let Some(known) = receive(&mut self.berths, at, &mut traffic) {
                round.push((at, known));
            }
        }
        // One of the requests may be to tell these numbers.
        traffic.settle(&self.engine.shared().metrics);
        self.carry_out(&round);
        for (at, _) in round.drain(..) {
            if answer(&mut self.berths, at, &mut traffic) {
                call(&mut self.called, &mut self.berths, at, Call::Mail);
            }
        }
        traffic.settle(&self.engine.shared().metrics);
        self.round = round;
    }

    /// Carries out the requests of a round.
    fn carry_out(&mut self, round: &[(usize, usize)]) {
        let mut batch = self.engine.batch();
        for (at, _) in round {
            let desk = self.berths.get_mut(*at).and_then(|berth| berth.member.desk_mut());
            if desk.is_some_and(|desk| guarded(|| desk.carry_out(&mut batch)).is_none()) {
                remove(&mut self.berths, *at);
            }
        }
        self.engine.settle_batch(batch);
    }
}

/// A connection that is still there has its turn, once however often it is called.
fn call(called: &mut VecDeque<usize>, berths: &mut Slab<Berth>, at: usize, why: Call) {
    if berths.get_mut(at).is_some_and(|berth| berth.call.add(why)) {
        called.push_back(at);
    }
}

/// The first stage of one connection: how many requests are known, if it is still there.
fn receive(berths: &mut Slab<Berth>, at: usize, traffic: &mut Traffic) -> Option<usize> {
    let Berth { member, waker, call } = berths.get_mut(at)?;
    let may_have = match std::mem::take(call) {
        // Whoever was called here has gone, and this one has had its turn.
        Call::Not => return None,
        why => why == Call::News,
    };
    let received = guarded(|| member.receive(may_have, traffic, &mut Context::from_waker(waker)));
    let known = received.and_then(Result::ok);
    if known.is_none() {
        remove(berths, at);
    }
    known
}

/// The last stage of one connection; true when it is to come again.
fn answer(berths: &mut Slab<Berth>, at: usize, traffic: &mut Traffic) -> bool {
    let Some(Berth { member, waker, .. }) = berths.get_mut(at) else { return false };
    match guarded(|| member.answer(traffic, &mut Context::from_waker(waker))) {
        Some(Poll::Pending) => false,
        Some(Poll::Ready(Ok(()))) => true,
        None | Some(Poll::Ready(Err(_))) => {
            remove(berths, at);
            false
        }
    }
}

/// A connection is over.
#[cold]
fn remove(berths: &mut Slab<Berth>, at: usize) {
    let berth = berths.try_remove(at);
    guarded(|| drop(berth));
}

impl Future for Crew {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let is_closed = this.gather(cx.waker());
        if !this.called.is_empty() {
            this.round();
        }
        if !this.called.is_empty() {
            // Once the runtime has looked who else is ready.
            return pin!(tokio::task::yield_now()).poll(cx);
        }
        if is_closed && this.berths.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What it returns; `None` when it panics, which the panic hook has told.
fn guarded<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::server::Builder;

    /// What members have done, and how often the crew has been woken.
    #[derive(Default)]
    struct Log {
        lines: Mutex<Vec<String>>,
        wakers: Mutex<Vec<Waker>>,
        mail: Mutex<Vec<Waker>>,
        wakes: AtomicUsize,
    }

    impl Wake for Log {
        fn wake(self: Arc<Self>) {
            self.wakes.fetch_add(1, SeqCst);
        }
    }

    impl Log {
        fn say(&self, line: String) {
            self.lines.lock().push(line);
        }

        fn take(&self) -> String {
            std::mem::take(&mut *self.lines.lock()).join(", ")
        }
    }

    /// A member without a desk, which does something at each stage.
    struct Dummy {
        name: usize,
        log: Arc<Log>,
        receive: fn() -> io::Result<usize>,
        answer: fn() -> Poll<io::Result<()>>,
    }

    impl Member for Dummy {
        fn watch(&mut self, waker: &Waker) {
            self.log.mail.lock().push(waker.clone());
        }

        fn receive(&mut self, may_have: bool, _: &mut Traffic, cx: &mut Context<'_>) -> io::Result<usize> {
            self.log.say(format!("{} {}", self.name, if may_have { "receives" } else { "is called" }));
            self.log.wakers.lock().push(cx.waker().clone());
            (self.receive)()
        }

        fn desk_mut(&mut self) -> Option<&mut Desk> {
            None
        }

        fn answer(&mut self, _: &mut Traffic, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.log.say(format!("{} answers", self.name));
            (self.answer)()
        }
    }

    impl Drop for Dummy {
        fn drop(&mut self) {
            self.log.say(format!("{} is gone", self.name));
        }
    }

    /// A crew that nobody but the test polls.
    struct World {
        crew: Crew,
        log: Arc<Log>,
        waker: Waker,
    }

    impl World {
        async fn new() -> Self {
            let engine = Builder::default().start().await.unwrap().house().engine.clone();
            let log = Arc::new(Log::default());
            let waker = Waker::from(Arc::clone(&log));
            Self { crew: Crew::new(engine, Arc::new(Roster(Mutex::default()))), log, waker }
        }

        fn enter(
            &self,
            name: usize,
            receive: fn() -> io::Result<usize>,
            answer: fn() -> Poll<io::Result<()>>,
        ) {
            let log = Arc::clone(&self.log);
            self.crew.roster.enter(move || Some(Box::new(Dummy { name, log, receive, answer })));
        }

        fn poll(&mut self) -> (bool, String) {
            let over = Pin::new(&mut self.crew).poll(&mut Context::from_waker(&self.waker)).is_ready();
            (over, self.log.take())
        }
    }

    fn well() -> io::Result<usize> {
        Ok(0)
    }

    fn pending() -> Poll<io::Result<()>> {
        Poll::Pending
    }

    #[tokio::test]
    async fn all_who_are_ready_go_through_each_stage_together() {
        let mut world = World::new().await;
        world.enter(0, well, pending);
        world.enter(1, well, pending);
        assert_eq!(world.poll(), (false, "0 receives, 1 receives, 0 answers, 1 answers".to_owned()));
        assert_eq!(world.poll(), (false, String::new()), "nobody has been called");
        let wakers = std::mem::take(&mut *world.log.wakers.lock());
        for waker in [&wakers[1], &wakers[1], &wakers[0], &wakers[1]] {
            waker.wake_by_ref();
        }
        assert_eq!(world.log.wakes.load(SeqCst), 1, "the first call wakes, for all");
        assert_eq!(world.poll(), (false, "1 receives, 0 receives, 1 answers, 0 answers".to_owned()));
    }

    #[tokio::test]
    async fn mail_is_not_news() {
        let mut world = World::new().await;
        world.enter(0, well, pending);
        world.poll();
        let (news, mail) = (world.log.wakers.lock().remove(0), world.log.mail.lock().remove(0));
        for (bells, said) in [
            (&[&mail][..], "0 is called, 0 answers"),
            (&[&mail, &mail], "0 is called, 0 answers"),
            (&[&news], "0 receives, 0 answers"),
            (&[&mail, &news], "0 receives, 0 answers"),
            (&[&news, &mail], "0 receives, 0 answers"),
        ] {
            bells.iter().for_each(|bell| bell.wake_by_ref());
            assert_eq!(world.poll().1, said);
        }
    }

    #[tokio::test]
    async fn whoever_is_over_or_panics_goes_alone() {
        let over = || Err(io::ErrorKind::UnexpectedEof.into());
        let mut world = World::new().await;
        world.enter(0, || panic!("on purpose"), pending);
        world.enter(1, well, || panic!("on purpose"));
        world.enter(2, over, pending);
        world.enter(3, well, || Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())));
        world.enter(4, well, pending);
        world.crew.roster.enter(|| panic!("on purpose"));
        world.crew.roster.enter(|| None);
        let (_, said) = world.poll();
        for name in 0..4 {
            assert!(said.contains(&format!("{name} is gone")), "{said}");
        }
        assert!(said.ends_with("4 answers"), "{said}");
        // A call for somebody who is gone is for nobody, or for whoever has its berth now.
        world.enter(5, well, pending);
        for waker in world.log.wakers.lock().drain(..) {
            waker.wake();
        }
        let (_, said) = world.poll();
        assert!(said.contains("4 answers") && !said.contains("gone"), "{said}");
        assert_eq!((said.matches("5 receives").count(), said.matches("5 answers").count()), (1, 1), "{said}");
    }

    #[tokio::test]
    async fn whoever_never_pauses_leaves_the_runtime_its_turn() {
        let mut world = World::new().await;
        world.enter(0, well, || Poll::Ready(Ok(())));
        for round in 1..4 {
            let said = world.poll().1;
            assert!(said.ends_with("0 answers"), "{said}");
            assert_eq!(world.log.wakes.load(SeqCst), round - 1, "not before the runtime has looked around");
            tokio::task::yield_now().await;
            assert_eq!(world.log.wakes.load(SeqCst), round, "and then it is");
        }
        for name in 1..=2 * ROUND_MAX {
            world.enter(name, well, pending);
        }
        for _ in 0..2 {
            assert_eq!(world.poll().1.matches("answers").count(), ROUND_MAX);
        }
    }

    #[tokio::test]
    async fn a_crew_ends_when_nobody_will_come_and_all_have_gone() {
        let mut world = World::new().await;
        world.enter(0, well, pending);
        assert!(!world.poll().0);
        world.crew.roster.close();
        assert!(!world.poll().0, "somebody is there");
        world.log.wakers.lock().pop().unwrap().wake();
        world.crew.berths.remove(0);
        assert!(world.poll().0);
    }
}
