//! The latency of a hand-off over sockets, and the server's share of it.
//!
//! Measures  from before the write of LPUSH, or PUBLISH, until another connection has read the reply of its BLPOP, or the
//!           message it subscribed to; and a PING with its reply, which is what sockets and waking a thread cost.
//! Share     of the server: what a hand-off takes beyond that PING. One hand-off at a time, without other load.
//! Usage     `cargo bench --bench handoff`, or `cargo bench --bench handoff -- HOST:PORT` for a server that runs already.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Hand-offs of each kind; the first tenth warms up and is not counted.
const ROUNDS: usize = 20_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let own = if named.is_none() { Some(Own::start()?) } else { None };
    let address = named.or_else(|| own.as_ref().map(|own| own.address.clone())).unwrap_or_default();

    let ping = ping(&address)?;
    println!("{:<28} {:>12} {:>12} {:>12}", "", "median us", "p99 us", "maximum us");
    tell("PING and its answer", &ping);
    for (name, times) in [("LPUSH to BLPOP", queue(&address)?), ("PUBLISH to message", message(&address)?)] {
        tell(name, &times);
        let share = |at: f64| micros(quantile(&times, at)) - micros(quantile(&ping, at));
        println!("{:<28} {:>12.1} {:>12.1}", "  beyond a PING", share(0.5), share(0.99));
    }
    Ok(())
}

/// A server of this build, ended with the run.
struct Own {
    child: Child,
    address: String,
}

impl Own {
    fn start() -> Result<Self, Failure> {
        let file = std::env::temp_dir().join(format!("redlatch-handoff-{}", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlatch"));
        command.args(["--port", "auto", "--port-file"]).arg(&file).stdout(Stdio::piped());
        let mut own = Self { child: command.spawn()?, address: String::new() };
        let log = own.child.stdout.take().ok_or("its output is piped")?;
        let mut lines = BufReader::new(log).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("Ready to accept connections"))) {
            return Err("the server did not become ready".into());
        }
        // A closed pipe would make the server's log fail.
        thread::spawn(move || lines.for_each(drop));
        own.address = format!("127.0.0.1:{}", std::fs::read_to_string(&file)?.trim());
        std::fs::remove_file(&file)?;
        Ok(own)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection with one request at a time.
struct Link(TcpStream);

impl Link {
    fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    fn say(&mut self, words: &[&str]) -> std::io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.write_all(request.as_bytes())
    }

    /// Reads a reply and compares it.
    fn hear(&mut self, expected: &[u8]) -> Result<(), Failure> {
        let mut answer = vec![0; expected.len()];
        self.0.read_exact(&mut answer)?;
        if answer == expected {
            return Ok(());
        }
        Err(format!("{:?}", String::from_utf8_lossy(&answer)).into())
    }

    /// Reads a bulk string.
    fn text(&mut self) -> Result<String, Failure> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let length: usize = String::from_utf8(head)?.trim_start_matches('$').trim().parse()?;
        let mut text = vec![0; length + 2];
        self.0.read_exact(&mut text)?;
        Ok(String::from_utf8(text)?)
    }
}

fn ping(address: &str) -> Result<Vec<Duration>, Failure> {
    let mut link = Link::open(address)?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        link.say(&["PING"])?;
        link.hear(b"+PONG\r\n")?;
        times.push(start.elapsed());
    }
    Ok(counted(times))
}

/// Measures BLPOP. Before each push, the server is asked until it reports a blocked client.
fn queue(address: &str) -> Result<Vec<Duration>, Failure> {
    let mut waiter = Link::open(address)?;
    let arrivals = on_a_thread(move || {
        waiter.say(&["BLPOP", "handoff", "0"])?;
        waiter.hear(b"*2\r\n$7\r\nhandoff\r\n$1\r\nx\r\n")?;
        Ok(Instant::now())
    });
    hand_off(address, &arrivals, &["LPUSH", "handoff", "x"], b":1\r\n", |probe| {
        probe.say(&["INFO", "clients"])?;
        Ok(probe.text()?.contains("blocked_clients:1\r\n"))
    })
}

fn message(address: &str) -> Result<Vec<Duration>, Failure> {
    let mut listener = Link::open(address)?;
    listener.say(&["SUBSCRIBE", "handoff"])?;
    listener.hear(b"*3\r\n$9\r\nsubscribe\r\n$7\r\nhandoff\r\n:1\r\n")?;
    let arrivals = on_a_thread(move || {
        listener.hear(b"*3\r\n$7\r\nmessage\r\n$7\r\nhandoff\r\n$1\r\nx\r\n")?;
        Ok(Instant::now())
    });
    hand_off(address, &arrivals, &["PUBLISH", "handoff", "x"], b":1\r\n", |_| Ok(true))
}

/// Repeats `once` on a thread, and sends its results.
fn on_a_thread(
    mut once: impl FnMut() -> Result<Instant, Failure> + Send + 'static,
) -> Receiver<Result<Instant, String>> {
    let (sender, arrivals) = channel();
    thread::spawn(move || {
        for _ in 0..ROUNDS {
            let arrival = once().map_err(|failure| failure.to_string());
            if sender.send(arrival).is_err() {
                break;
            }
        }
    });
    arrivals
}

/// Sends `words` as soon as `waits` reports a waiting connection, again and again.
fn hand_off(
    address: &str,
    arrivals: &Receiver<Result<Instant, String>>,
    words: &[&str],
    answer: &[u8],
    waits: fn(&mut Link) -> Result<bool, Failure>,
) -> Result<Vec<Duration>, Failure> {
    let (mut giver, mut probe) = (Link::open(address)?, Link::open(address)?);
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        while !waits(&mut probe)? {}
        let start = Instant::now();
        giver.say(words)?;
        let arrival = arrivals.recv()??;
        giver.hear(answer)?;
        times.push(arrival.saturating_duration_since(start));
    }
    Ok(counted(times))
}

/// Without the warm-up, sorted.
fn counted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.drain(..times.len() / 10);
    times.sort_unstable();
    times
}

fn quantile(sorted: &[Duration], at: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * at) as usize]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn tell(name: &str, sorted: &[Duration]) {
    let [median, late, last] = [0.5, 0.99, 1.0].map(|at| micros(quantile(sorted, at)));
    println!("{name:<28} {median:>12.1} {late:>12.1} {last:>12.1}");
}
