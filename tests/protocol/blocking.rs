//! Blocking pops compared with a model: the order of waiters, what each receives, and that no wait is left behind.
//!
//! Belongs here  random runs, each checked after every step; single cases are transcripts.
//! Time          moves only by the steps of a run. `SEED=17` replays run 17 alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use redlatch_core::state::session::Session;

use crate::simulation::parts::{Fault, Machine};
use crate::support::rng::{Rng, number};

const RUNS: u64 = 100;
const STEPS: usize = 300;
const CLIENTS: usize = 8;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn clients_are_served_in_the_order_in_which_they_came() {
    for seed in seeds() {
        let mut run = ModelRun::new(seed);
        for step in 0..STEPS {
            let what = run.step();
            run.compare(&format!("seed {seed}, step {step}: {what}"));
        }
        run.end(seed);
    }
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    number("SEED").map_or(1..=RUNS, |seed| seed..=seed)
}

/// The engine with its clients, and the model.
struct ModelRun {
    machine: Machine,
    clients: Vec<Connection>,
    model: Model,
    rng: Rng,
    next_element: u32,
}

struct Connection {
    session: Session,
    output: String,
    is_waiting: bool,
}

impl ModelRun {
    fn new(seed: u64) -> Self {
        let machine = Machine::new(seed, Fault::None);
        let clients = (0..CLIENTS).map(|_| connection(&machine)).collect();
        let model = Model { said: vec![String::new(); CLIENTS], ..Model::default() };
        Self { machine, clients, model, rng: Rng::new(seed), next_element: 0 }
    }

    fn key(&mut self) -> &'static str {
        self.rng.pick(&KEYS)
    }

    /// One client takes one action, or time passes.
    fn step(&mut self) -> String {
        let who = self.rng.below(CLIENTS);
        if self.clients[who].is_waiting {
            return self.meanwhile(who);
        }
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let now = self.machine.clock.now_ms();
        self.model.call(who, &words, now);
        self.send(who, &words);
        format!("client {who}: {}", words.join(" "))
    }

    fn words(&mut self) -> Vec<String> {
        let (key, other) = (self.key(), self.key());
        let timeout = ["0", "0.010", "0.030"][self.rng.below(3)];
        let side = ["LEFT", "RIGHT"][self.rng.below(2)];
        let words: Vec<&str> = match self.rng.below(12) {
            0 | 1 => vec!["BLPOP", key, other, timeout],
            2 => vec!["BRPOP", key, timeout],
            3 | 4 => vec!["BLMOVE", key, other, side, "RIGHT", timeout],
            5 => vec!["LPOP", key],
            6 => vec!["DEL", key],
            7 => vec!["LMOVE", key, other, "LEFT", side],
            place => {
                let command = if place == 8 { "LPUSH" } else { "RPUSH" };
                let count = 1 + self.rng.below(3);
                let elements = (0..count).map(|_| {
                    self.next_element += 1;
                    self.next_element.to_string()
                });
                return [command.to_owned(), key.to_owned()].into_iter().chain(elements).collect();
            }
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// An event for a client that waits.
    fn meanwhile(&mut self, who: usize) -> String {
        match self.rng.below(4) {
            0 => {
                self.model.waiters.retain(|waiter| waiter.who != who);
                self.model.said[who].clear();
                self.machine.engine.disconnect(&mut self.clients[who].session);
                self.clients[who] = connection(&self.machine);
                format!("client {who} leaves, and another comes")
            }
            1 => {
                self.model.waiters.retain(|waiter| waiter.who != who);
                self.model.said[who].push_str("*-1\r\n");
                assert!(self.clients[who].session.client.unblock(None));
                format!("client {who} is unblocked")
            }
            _ => {
                self.machine.clock.advance(7);
                self.model.pass(self.machine.clock.now_ms());
                "time passes".to_owned()
            }
        }
    }

    fn send(&mut self, who: usize, words: &[&str]) {
        let Connection { session, output, is_waiting } = &mut self.clients[who];
        let mut batch = self.machine.engine.batch();
        output.push_str(&self.machine.offer(session, &mut batch, words));
        self.machine.engine.end_batch(session, batch);
        *is_waiting = session.parked.is_some();
    }

    /// Every client has received what the model says, and waits if the model says so.
    fn compare(&mut self, what: &str) {
        for (who, connection) in self.clients.iter_mut().enumerate() {
            if connection.is_waiting {
                connection.output.push_str(&self.machine.resume(&mut connection.session));
                connection.is_waiting = connection.session.parked.is_some();
            }
            assert_eq!(connection.output, self.model.said[who], "{what}: client {who} was told");
            let waits = self.model.waiters.iter().any(|waiter| waiter.who == who);
            assert_eq!(connection.is_waiting, waits, "{what}: client {who} waits");
            connection.output.clear();
            self.model.said[who].clear();
        }
    }

    /// Every client disconnects; no wait is left.
    fn end(&mut self, seed: u64) {
        let places = |waiter: &Waiter| waiter.keys.iter().collect::<BTreeSet<_>>().len();
        let places: usize = self.model.waiters.iter().map(places).sum();
        let engine = self.machine.engine.clone();
        let shared = engine.shared();
        assert_eq!(shared.keyspace.parked(), places, "seed {seed}: only those who wait are in a queue");
        for connection in &mut self.clients {
            engine.disconnect(&mut connection.session);
        }
        assert_eq!(shared.keyspace.parked(), 0, "seed {seed}: nobody is left in a queue");
        assert_eq!(shared.registries.clients.len(), 0, "seed {seed}");
        shared.keyspace.assert_laws();
    }
}

fn connection(machine: &Machine) -> Connection {
    Connection { session: machine.connect(), output: String::new(), is_waiting: false }
}

/// The model: the expected behaviour in its simplest form.
#[derive(Default)]
struct Model {
    lists: BTreeMap<String, VecDeque<String>>,
    /// In the order of arrival.
    waiters: Vec<Waiter>,
    said: Vec<String>,
}

#[derive(Clone, Debug)]
struct Waiter {
    who: usize,
    keys: Vec<String>,
    want: Want,
    until: Option<u64>,
}

#[derive(Clone, Debug)]
enum Want {
    Pop { from_head: bool },
    Move { from_head: bool, to: String, to_head: bool },
}

impl Model {
    fn call(&mut self, who: usize, words: &[&str], now: u64) {
        let until = |seconds: &str| match seconds {
            "0" => None,
            seconds => Some(now + (seconds.parse::<f64>().expect("a number") * 1_000.0).round() as u64),
        };
        let (key, last) = (words[1], words[words.len() - 1]);
        match words[0] {
            "BLPOP" | "BRPOP" => {
                let keys = words[1..words.len() - 1].iter().map(|key| (*key).to_owned()).collect();
                let want = Want::Pop { from_head: words[0] == "BLPOP" };
                self.take_or_wait(Waiter { who, keys, want, until: until(last) });
            }
            "BLMOVE" => {
                let want =
                    Want::Move { from_head: words[3] == "LEFT", to: words[2].to_owned(), to_head: false };
                self.take_or_wait(Waiter { who, keys: vec![key.to_owned()], want, until: until(last) });
            }
            "LMOVE" if self.lists.contains_key(key) => {
                let want =
                    Want::Move { from_head: true, to: words[2].to_owned(), to_head: words[4] == "LEFT" };
                self.take_or_wait(Waiter { who, keys: vec![key.to_owned()], want, until: None });
            }
            "LMOVE" => self.said[who].push_str("$-1\r\n"),
            "LPOP" => {
                let text = self.pop(key, true).map_or("$-1\r\n".to_owned(), |element| bulk(&element));
                self.said[who].push_str(&text);
            }
            "DEL" => {
                let was_there = u8::from(self.lists.remove(key).is_some());
                self.said[who].push_str(&format!(":{was_there}\r\n"));
            }
            _ => {
                for element in &words[2..] {
                    self.push(key, words[0] == "LPUSH", (*element).to_owned());
                }
                self.said[who].push_str(&format!(":{}\r\n", self.lists[key].len()));
                self.serve(key);
            }
        }
    }

    fn take_or_wait(&mut self, waiter: Waiter) {
        match waiter.keys.iter().find(|key| self.lists.contains_key(*key)).cloned() {
            Some(key) => {
                if let Some(key) = self.give(&waiter, &key) {
                    self.serve(&key);
                }
            }
            None => self.waiters.push(waiter),
        }
    }

    /// Serves the clients that wait for `key`, and those that the moved elements then serve.
    fn serve(&mut self, key: &str) {
        let mut ready = VecDeque::from([key.to_owned()]);
        while let Some(key) = ready.pop_front() {
            while self.lists.contains_key(&key)
                && let Some(first) = self.waiters.iter().position(|waiter| waiter.keys.contains(&key))
            {
                let waiter = self.waiters.remove(first);
                ready.extend(self.give(&waiter, &key));
            }
        }
    }

    /// Gives a client what it wants of `key`, which has it; returns the key to which an element was moved.
    fn give(&mut self, waiter: &Waiter, key: &str) -> Option<String> {
        let (text, moved_to) = match &waiter.want {
            Want::Pop { from_head } => {
                let element = self.pop(key, *from_head).expect("a list is never empty");
                (format!("*2\r\n{}{}", bulk(key), bulk(&element)), None)
            }
            Want::Move { from_head, to, to_head } => {
                let element = self.pop(key, *from_head).expect("a list is never empty");
                let text = bulk(&element);
                self.push(to, *to_head, element);
                (text, Some(to.clone()))
            }
        };
        self.said[waiter.who].push_str(&text);
        moved_to
    }

    fn push(&mut self, key: &str, at_head: bool, element: String) {
        let list = self.lists.entry(key.to_owned()).or_default();
        if at_head { list.push_front(element) } else { list.push_back(element) }
    }

    fn pop(&mut self, key: &str, from_head: bool) -> Option<String> {
        let list = self.lists.get_mut(key)?;
        let element = if from_head { list.pop_front() } else { list.pop_back() };
        if list.is_empty() {
            self.lists.remove(key);
        }
        element
    }

    fn pass(&mut self, now: u64) {
        let said = &mut self.said;
        self.waiters.retain(|waiter| {
            let is_over = waiter.until.is_some_and(|until| until <= now);
            if is_over {
                said[waiter.who].push_str("*-1\r\n");
            }
            !is_over
        });
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A server with threads and sockets: a pushed element reaches the waiting client, whichever thread serves it.
#[cfg(feature = "server")]
mod running {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    use redlatch::Server;

    use crate::support::waits::PATIENCE;

    const PAIRS: usize = 4;
    const ELEMENTS: usize = 400;
    const END: &str = "end";

    /// A connection that fails the test instead of waiting for ever.
    fn connect(server: &Server) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(server.addr()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit can be set");
        BufReader::new(stream)
    }

    fn line(stream: &mut BufReader<TcpStream>) -> String {
        let mut line = String::new();
        stream.read_line(&mut line).expect("an answer within a minute");
        line.trim_end().to_owned()
    }

    /// Takes elements from three lists, moves some through a fourth, until told to end.
    fn consume(mut stream: BufReader<TcpStream>) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            stream.get_mut().write_all(b"BLPOP one two moved 0\r\n").expect("it still listens");
            let lines: Vec<String> = (0..5).map(|_| line(&mut stream)).collect();
            assert_eq!(lines[0], "*2", "{lines:?}");
            if lines[4] == END {
                return taken;
            }
            taken.push(lines[4].clone());
        }
    }

    fn shift(mut stream: BufReader<TcpStream>) {
        loop {
            stream.get_mut().write_all(b"BLMOVE from moved LEFT RIGHT 0\r\n").expect("it still listens");
            assert!(line(&mut stream).starts_with('$'));
            if line(&mut stream) == END {
                return;
            }
        }
    }

    fn produce(mut stream: BufReader<TcpStream>, producer: usize) {
        for number in 0..ELEMENTS {
            let list = ["one", "two", "from"][(number + producer) % 3];
            let request = format!("RPUSH {list} {producer}-{number}\r\n");
            stream.get_mut().write_all(request.as_bytes()).expect("it still listens");
            assert!(line(&mut stream).starts_with(':'));
        }
    }

    #[test]
    fn nothing_that_is_pushed_is_lost_or_taken_twice() {
        let server = Server::builder().start_blocking().expect("a server starts");
        let taken: Vec<String> = std::thread::scope(|scope| {
            let consumers: Vec<_> =
                (0..PAIRS).map(|_| connect(&server)).map(|stream| scope.spawn(|| consume(stream))).collect();
            let shifter = connect(&server);
            let shifter = scope.spawn(|| shift(shifter));
            let producers: Vec<_> = (0..PAIRS)
                .map(|producer| (producer, connect(&server)))
                .map(|(producer, stream)| scope.spawn(move || produce(stream, producer)))
                .collect();
            producers.into_iter().for_each(|producer| producer.join().expect("a producer"));

            // The word that ends the shifter ends a consumer once it has been moved.
            let mut last = connect(&server);
            let ends = [&["RPUSH", "from", END][..], &["RPUSH", "moved", END, END, END]].map(|w| w.join(" "));
            last.get_mut().write_all(format!("{}\r\n", ends[0]).as_bytes()).expect("it still listens");
            shifter.join().expect("the shifter");
            last.get_mut().write_all(format!("{}\r\n", ends[1]).as_bytes()).expect("it still listens");
            consumers.into_iter().flat_map(|consumer| consumer.join().expect("a consumer")).collect()
        });

        let distinct: BTreeSet<&String> = taken.iter().collect();
        assert_eq!((taken.len(), distinct.len()), (PAIRS * ELEMENTS, PAIRS * ELEMENTS));
        assert!(server.keys().get("one").is_none() && server.keys().get("moved").is_none());
    }
}
