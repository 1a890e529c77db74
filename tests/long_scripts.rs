//! Scripts that take long, as their neighbours see them.
//!
//! Belongs here  that nobody's thread is held by somebody else's script: others are served, are told in time, and may
//!               end it.
//! Time          manual clocks, moved by the test. A script that has begun says so by a message.

#![cfg(feature = "lua")]
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::time::Duration;

use redlatch::Server;
use redlatch::clock::WallTime;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

const START: WallTime = WallTime::from_millis(1_700_000_000_000);
/// Longer than `busy-reply-threshold` by default.
const TOO_LONG: Duration = Duration::from_secs(6);

struct Client(BufReader<DuplexStream>);

impl Client {
    fn of(server: &Server) -> Self {
        Self(BufReader::new(server.stream()))
    }

    async fn say(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(request.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    async fn ask(&mut self, words: &[&str]) -> String {
        self.say(words).await;
        self.line().await
    }

    /// Has the script ended, once it has run for long enough to be meant.
    async fn kill(&mut self) -> String {
        loop {
            let answer = self.ask(&["SCRIPT", "KILL"]).await;
            if !answer.starts_with("-NOTBUSY") {
                return answer;
            }
        }
    }

    /// Sends a script that never ends, and returns when it has begun: `first` is what it does before.
    async fn run_for_ever(&mut self, server: &Server, first: &str) {
        let mut listener = Self::of(server);
        assert_eq!(listener.ask(&["SUBSCRIBE", "begun"]).await, "*3");
        let script = format!("{first} redis.call('publish', 'begun', 'yes') while true do end");
        self.say(&["EVAL", &script, "1", "k"]).await;
        while listener.line().await != "yes" {}
    }
}

/// All connections on one thread: whoever holds it holds them all.
async fn server() -> Server {
    Server::builder().manual_clock(START).start().await.unwrap()
}

#[tokio::test]
async fn a_script_that_never_ends_is_ended_by_a_neighbour() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    assert_eq!(other.ask(&["SET", "k", "v"]).await, "+OK");
    runner.run_for_ever(&server, "").await;
    assert_eq!(other.kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"), "it is told why");
    assert_eq!(other.ask(&["SCRIPT", "KILL"]).await, "-NOTBUSY No scripts in execution right now.");
    assert_eq!(runner.ask(&["SET", "k", "w"]).await, "+OK");
}

#[tokio::test]
async fn what_needs_the_keys_waits_and_is_told_when_it_has_waited_long_enough() {
    let server = server().await;
    let (mut runner, mut reader, mut other) = (Client::of(&server), Client::of(&server), Client::of(&server));
    runner.run_for_ever(&server, "").await;
    reader.say(&["GET", "k"]).await;
    let clock = server.clock();
    let answer = reader.line();
    tokio::pin!(answer);
    // How soon the script is found to take long is not the clock's to say.
    let answer = loop {
        tokio::select! {
            answer = &mut answer => break answer,
            () = clock.advance(TOO_LONG) => {}
        }
    };
    let busy = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    assert_eq!(answer, busy);
    assert_eq!(other.ask(&["PING"]).await, busy);
    assert_eq!(other.ask(&["EVAL", "return 1", "0"]).await, busy);
    assert_eq!(other.kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"));
    assert_eq!(other.ask(&["EVAL", "return 1", "0"]).await, ":1");
}

#[tokio::test]
async fn a_script_that_has_written_is_not_ended_but_with_the_server() {
    let server = server().await;
    let (mut runner, mut other) = (Client::of(&server), Client::of(&server));
    runner.run_for_ever(&server, "redis.call('set', KEYS[1], 'w')").await;
    assert!(other.kill().await.starts_with("-UNKILLABLE"));
    assert_eq!(other.ask(&["SUBSCRIBE", "c"]).await, "*3", "who needs no key is served");
    server.stop();
    server.stopped().await;
    // Its thread ends: the runtime of this test would wait for it.
    drop(runner.line().await);
}

#[tokio::test]
async fn scripts_behind_a_long_one_have_their_turn_in_order() {
    let server = server().await;
    let mut runner = Client::of(&server);
    runner.run_for_ever(&server, "").await;
    let mut others: Vec<Client> = (0..8).map(|_| Client::of(&server)).collect();
    let count = "for i = 1, 10 do redis.call('incr', KEYS[1]) end return redis.call('get', KEYS[1])";
    for other in &mut others {
        other.say(&["EVAL", count, "1", "n"]).await;
    }
    assert_eq!(Client::of(&server).kill().await, "+OK");
    assert!(runner.line().await.contains("Script killed by user"));
    for other in &mut others {
        assert!(other.line().await.starts_with('$'));
    }
    assert_eq!(server.keys().get("n").as_deref(), Some(&b"80"[..]));
    server.assert_laws();
}
