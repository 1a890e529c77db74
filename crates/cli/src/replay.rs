//! `redlatch replay`: the requests of a recorded history once more, in their order, and the replies that differ.
//!
//! Owns    a connection for each recorded client, and the servers, unless there is one to send to.
//! Rule    a reply is read when it came in the history. So a request that waits does not hold up the others.
//! Rule    replies that differ from one run to the next are not compared; see [`UNSTABLE`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redlatch_client::wire::{Connection, Reply, Target, connect, open};
use redlatch_client::{Error, Trust};
use redlatch_core::state::clients::ClientId;
use redlatch_core::testing::{Event, EventKind, shortened_text, shown};
use redlatch_server::Server;
use tokio::time::{sleep, timeout};

use super::exit::{self, Failure};
use super::history::{Source, reply_text};
use super::place::Place;
use super::print;

/// What `redlatch replay` was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) source: Source,
    /// The server to send to. `None`: one in this process.
    pub(super) against: Option<Place>,
}

/// Sends the requests again; returns the exit code.
pub(super) fn run(options: Options) -> u8 {
    exit::run(async { replay(options).await.map(|is_same| u8::from(!is_same)) })
}

/// Returns whether all replies were the recorded ones.
async fn replay(options: Options) -> Result<bool, Failure> {
    let events = options.source.read().await?;
    let bench = match options.against {
        None => Bench::here(&events).await?,
        Some(place) => Bench::there(place, &events).await?,
    };
    let mut replay = Replay::of(&events, bench);
    for event in &events {
        replay.follow(event).await?;
    }
    let Replay { sent, different, left_out, .. } = replay;
    say(&format!(
        "{sent} requests sent again, {different} replies differ, {left_out} replies not compared\n"
    ))?;
    Ok(different == 0)
}

fn say(text: &str) -> Result<(), Failure> {
    print(text.as_bytes()).map(drop).map_err(Failure::no_server)
}

/// What the requests are sent to.
enum Bench {
    /// A server in this process for each node, whose clock stands still.
    Here { servers: BTreeMap<u16, Server>, now_ms: u64 },
    /// A server elsewhere.
    There { place: Box<(Target, Trust)>, clock: Option<Box<Connection>>, now_ms: u64 },
}

impl Bench {
    async fn here(events: &[Event]) -> Result<Self, Failure> {
        let nodes: BTreeSet<u16> = events.iter().map(|event| event.node).collect();
        let now_ms = begin(events);
        let mut servers = BTreeMap::new();
        for node in nodes {
            let server =
                Server::builder().port(0).manual_clock(redlatch_proto::clock::WallTime::from_millis(now_ms));
            let server = server.start().await.map_err(Failure::no_server)?;
            servers.insert(node, server);
        }
        Ok(Self::Here { servers, now_ms })
    }

    async fn there(place: Place, events: &[Event]) -> Result<Self, Failure> {
        let (target, trust) = place.find().map_err(Failure::misused)?;
        if events.iter().any(|event| event.node != events[0].node) {
            let fault = "the history has several nodes; without --against there is a server for each";
            return Err(Failure::misused(fault));
        }
        let mut control = connect(&target, &trust).await?;
        let is_moved = !matches!(control.ask(&[&b"TEST.CLOCK"[..], b"FREEZE"]).await?, Reply::Error(_));
        let clock = is_moved.then(|| Box::new(control));
        Ok(Self::There { place: Box::new((target, trust)), clock, now_ms: begin(events) })
    }

    async fn open(&self, node: u16) -> Result<Connection, Error> {
        match self {
            Self::Here { servers, .. } => match servers.get(&node) {
                Some(server) => Ok(Connection::over(Box::new(server.stream()), STEP_MAX)),
                None => Err(Error::Unreachable(format!("there is no node {node}"))),
            },
            Self::There { place, .. } => {
                let (target, trust) = &**place;
                let mut connection = open(target, trust, STEP_MAX).await?;
                connection.authenticate(target).await?;
                Ok(connection)
            }
        }
    }

    /// Lets time pass until a recorded moment, counted without steps of the wall clock. What was sent before has been read by
    /// then.
    async fn advance(&mut self, to_ms: u64) -> Result<(), Failure> {
        match self {
            Self::Here { servers, now_ms } => {
                let by = Duration::from_millis(to_ms.saturating_sub(*now_ms));
                for server in servers.values() {
                    server.clock().advance(by).await;
                }
                *now_ms = to_ms.max(*now_ms);
            }
            Self::There { clock, now_ms, .. } => {
                let millis = to_ms.saturating_sub(*now_ms);
                match clock {
                    Some(clock) => {
                        sleep(SETTLED).await;
                        let millis = millis.to_string();
                        clock.call(&[&b"TEST.CLOCK"[..], b"ADVANCE", millis.as_bytes()]).await?;
                    }
                    None => sleep(SETTLED.max(Duration::from_millis(millis))).await,
                }
                *now_ms = to_ms.max(*now_ms);
            }
        }
        Ok(())
    }

    async fn step_wall(&mut self, millis: i64) -> Result<(), Failure> {
        match self {
            Self::Here { servers, .. } => {
                servers.values().for_each(|server| server.clock().step_wall(millis));
            }
            Self::There { clock: Some(clock), .. } => {
                let millis = millis.to_string();
                clock.call(&[&b"TEST.CLOCK"[..], b"STEP-WALL", millis.as_bytes()]).await?;
            }
            Self::There { .. } => {}
        }
        Ok(())
    }

    /// Whether time stands still between requests.
    fn is_frozen(&self) -> bool {
        !matches!(self, Self::There { clock: None, .. })
    }
}

fn begin(events: &[Event]) -> u64 {
    events.first().map_or(0, |event| event.at)
}

/// The state of a replay.
struct Replay<'e> {
    bench: Bench,
    clients: BTreeMap<(u16, ClientId), Connection>,
    /// Clients that have subscribed.
    subscribers: BTreeSet<(u16, ClientId)>,
    /// Requests whose replies have not been read.
    open: BTreeMap<u64, &'e Event>,
    /// Requests that met a fault.
    faulty: BTreeSet<u64>,
    /// Requests that are answered before anything else happens.
    quick: BTreeSet<u64>,
    /// How far the wall clock was stepped.
    stepped_ms: i64,
    sent: usize,
    different: usize,
    left_out: usize,
}

impl<'e> Replay<'e> {
    fn of(events: &'e [Event], bench: Bench) -> Self {
        let of = |kind| events.iter().filter(move |event| event.kind == kind);
        let faulty = of(EventKind::Fault).filter_map(|event| event.request).collect();
        let visible = events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Request | EventKind::Reply))
            .collect::<Vec<_>>();
        let pairs = visible.windows(2).filter(|pair| pair[1].request == Some(pair[0].id));
        let quick = pairs.filter(|pair| pair[0].at == pair[1].at).map(|pair| pair[0].id).collect();
        let (clients, subscribers, open) = Default::default();
        let (stepped_ms, sent, different, left_out) = Default::default();
        Self { bench, clients, subscribers, open, faulty, quick, stepped_ms, sent, different, left_out }
    }

    async fn follow(&mut self, event: &'e Event) -> Result<(), Failure> {
        match event.kind {
            EventKind::Request => self.request(event).await,
            EventKind::Reply => self.reply(event).await,
            EventKind::Disconnect => {
                if let Some(client) = event.client {
                    self.clients.remove(&(event.node, client));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The time of an event without steps of the wall clock.
    fn time(&self, event: &Event) -> u64 {
        event.at.saturating_add_signed(self.stepped_ms.saturating_neg())
    }

    async fn request(&mut self, event: &'e Event) -> Result<(), Failure> {
        let (Some(command), Some(client)) = (event.command.as_deref(), event.client) else { return Ok(()) };
        if command == "TEST.CLOCK STEP-WALL" {
            let millis =
                event.args.first().and_then(|millis| redlatch_proto::number::integer(millis)).unwrap_or(0);
            self.stepped_ms = self.stepped_ms.saturating_add(millis);
            return self.bench.step_wall(millis).await;
        }
        if is_one_of(command, NOT_SENT) {
            return Ok(());
        }
        let time = self.time(event);
        self.bench.advance(time).await?;
        let place = (event.node, client);
        if !self.clients.contains_key(&place) {
            let connection = self.bench.open(event.node).await?;
            self.clients.insert(place, connection);
        }
        let connection = self.clients.get_mut(&place).expect("it was opened");
        if command == "HELLO" {
            // The password, if there was one, is not in the history.
            if event.args.first().is_some_and(|version| version == "3") {
                connection.speak_resp3().await?;
            }
            return Ok(());
        }
        let words = command.split(' ').map(str::as_bytes).chain(event.args.iter().map(|word| &word[..]));
        connection.send(&words.collect::<Vec<_>>()).await?;
        self.sent += 1;
        // What a subscriber receives is not read: its replies are among messages.
        if is_one_of(command, PUSHED) || self.subscribers.contains(&place) {
            self.subscribers.insert(place);
            self.left_out += 1;
            return self.bench.advance(time).await;
        }
        self.open.insert(event.id, event);
        if !self.quick.contains(&event.id) {
            // It is read before the next request is sent.
            self.bench.advance(time).await?;
        }
        Ok(())
    }

    async fn reply(&mut self, event: &'e Event) -> Result<(), Failure> {
        let Some(request) = event.request.and_then(|request| self.open.remove(&request)) else {
            return Ok(());
        };
        let time = self.time(event);
        if !self.quick.contains(&request.id) {
            self.bench.advance(time).await?;
        }
        let client = event.client.and_then(|client| self.clients.get_mut(&(event.node, client)));
        let Some(connection) = client else { return Ok(()) };
        let command = request.command.as_deref().unwrap_or_default();
        let reply = match timeout(STEP_MAX, connection.answer()).await {
            Ok(Ok(reply)) => shortened_text(reply_text(&reply)),
            Ok(Err(error)) => format!("({error})"),
            Err(_) => "(no reply)".to_owned(),
        };
        let recorded = event.reply.as_deref().unwrap_or_default();
        let is_unstable =
            is_one_of(command, UNSTABLE) || (!self.bench.is_frozen() && is_one_of(command, TIMES));
        if is_unstable || self.faulty.contains(&request.id) {
            self.left_out += 1;
        } else if reply != recorded {
            self.different += 1;
            let [recorded, reply] = [recorded, &reply].map(|text| shown(text.as_bytes(), REPLY_CHARS_SHOWN));
            say(&format!("{}\n    recorded: {recorded}\n    replayed: {reply}\n", request.line()))?;
        }
        Ok(())
    }
}

/// Whether the command, or its container, is in the list.
fn is_one_of(command: &str, names: &[&str]) -> bool {
    let container = command.split(['.', ' ']).next().unwrap_or_default();
    names.iter().any(|name| *name == command || *name == container)
}

/// Commands that are not sent: logins, whose passwords are not recorded; what drives the test backend or ends the server; and
/// what changes which replies there are.
const NOT_SENT: &[&str] = &["AUTH", "CLIENT REPLY", "MONITOR", "SHUTDOWN", "TEST"];
/// Commands after which a client gets messages.
const PUSHED: &[&str] =
    &["PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE"];
/// Commands whose replies tell of the process, of connections, of real time, or are random.
const UNSTABLE: &[&str] = &[
    "ACL", "CLIENT", "COMMAND", "CONFIG", "DEBUG", "HRANDFIELD", "INFO", "LATENCY", "LOCK.EXPLAIN",
    "LOCK.GRAPH", "LOCK.LINT", "LOCK.LIST", "LOCK.WAITERS", "LOCK.WHO", "MEMORY", "RANDOMKEY", "SLOWLOG",
    "SPOP", "SRANDMEMBER", "ZRANDMEMBER",
];
/// Commands whose replies are times: not compared where time passes.
const TIMES: &[&str] = &["EXPIRETIME", "PEXPIRETIME", "PTTL", "TIME", "TTL"];
/// Characters of a reply that are printed.
const REPLY_CHARS_SHOWN: usize = 300;
/// How long a reply may take.
const STEP_MAX: Duration = Duration::from_secs(5);
/// How long a server elsewhere may take to read a request.
const SETTLED: Duration = Duration::from_millis(2);
