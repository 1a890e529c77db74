//! A graceful stop: who is told what, how long it takes at most, and how it is cut short.

use std::io::{Read, Write};
use std::net::TcpStream;

use redlatch::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::binary::{Running, redlatch};
use crate::support::waits::wait_until;

fn start(timeout: &str) -> Running {
    Running::start(redlatch().args(["--port", "auto", "--shutdown-timeout", timeout]))
}

/// Waits until so many calls wait.
fn await_blocked(server: &Running, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    wait_until("so many wait", || server.ask("INFO clients").contains(&wanted));
}

/// A client that reads the first byte of long replies, and no more.
fn slow_reader(server: &Running) -> TcpStream {
    let mut client = server.connect();
    client.write_all(b"SETRANGE v 8000000 x\r\n").unwrap();
    client.write_all(&b"GET v\r\n".repeat(16)).unwrap();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b":8000001\r\n");
    client.read_exact(&mut [0]).unwrap();
    client
}

#[test]
fn calls_that_wait_are_told_before_their_connections_close() {
    for end in ["TERM", "SHUTDOWN"] {
        let server = start("10");
        assert!(server.ask("LOCK.ACQUIRE k holder LEASE 60000").starts_with('*'));
        let waits = ["BLPOP q 0", "LOCK.ACQUIRE k me LEASE 60000 WAIT 60000", "WAIT 1 0", "BZPOPMIN z 0"];
        let mut clients: Vec<_> = waits
            .iter()
            .map(|request| {
                let mut client = server.connect();
                client.write_all(format!("{request}\r\n").as_bytes()).unwrap();
                client
            })
            .collect();
        await_blocked(&server, waits.len());
        if end == "TERM" {
            server.signal(end);
        } else {
            server.connect().write_all(b"SHUTDOWN\r\n").unwrap();
        }
        for (client, request) in clients.iter_mut().zip(waits) {
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap();
            assert_eq!(said, "-UNBLOCKED the server is shutting down\r\n", "{end}: {request}");
        }
        assert_eq!(server.end(), Some(0));
    }
}

#[tokio::test]
async fn requests_that_have_arrived_are_answered_and_grant_nothing() {
    let server = Server::builder().start().await.unwrap();
    let (mut holder, mut other) = (server.stream(), server.stream());
    holder.write_all(b"LOCK.ACQUIRE mine me LEASE 60000\r\nSET text x PX 60000\r\n").await.unwrap();
    let mut granted = Vec::new();
    while !granted.ends_with(b"+OK\r\n") {
        holder.read_buf(&mut granted).await.unwrap();
    }
    // The tasks of the connections do not run between these requests and the end.
    let refused = ["SET k v NX PX 60000", "LOCK.ACQUIRE k me", "LOCK.ACQUIRE mine you WAIT 60000", "INCR n"];
    other.write_all(format!("{}\r\nGET text\r\nPING\r\n", refused.join("\r\n")).as_bytes()).await.unwrap();
    holder.write_all(b"LOCK.RELEASE mine me\r\nLOCK.EXTEND mine me LEASE 9\r\nDEL text\r\n").await.unwrap();
    server.stop();
    let (mut said, mut released) = (String::new(), String::new());
    other.read_to_string(&mut said).await.unwrap();
    holder.read_to_string(&mut released).await.unwrap();
    let refusal = "-SHUTDOWN the server is shutting down: no lock is granted or extended\r\n";
    let (refusals, rest) = said.split_at(refused.len() * refusal.len());
    assert_eq!(refusals, refusal.repeat(refused.len()));
    assert!(rest.starts_with("$1\r\nx\r\n+PONG\r\n") || rest == "$-1\r\n+PONG\r\n", "{rest}");
    assert_eq!(released, format!(":1\r\n{refusal}:1\r\n"));
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_call_that_arrives_with_the_stop_is_told_as_well() {
    let server = Server::builder().set("shutdown-timeout", "100000").start().await.unwrap();
    let requests = ["BLPOP q 0", "WAIT 1 0", "PING\r\nBZPOPMIN z 0"];
    let mut clients = requests.map(|_| server.stream());
    for client in &mut clients {
        client.write_all(b"PING\r\n").await.unwrap();
        client.read_exact(&mut [0; 7]).await.unwrap();
    }
    // The tasks of the connections do not run between these requests and the end.
    for (client, request) in clients.iter_mut().zip(requests) {
        client.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
    }
    server.stop();
    for (mut client, request) in clients.into_iter().zip(requests) {
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        assert!(said.ends_with("-UNBLOCKED the server is shutting down\r\n"), "{request}: {said}");
    }
    server.finished().await;
}

#[tokio::test]
async fn a_lock_that_is_released_at_the_end_goes_to_nobody() {
    let server = Server::builder().start().await.unwrap();
    let (mut holder, mut waiter) = (server.stream(), server.stream());
    holder.write_all(b"LOCK.ACQUIRE k holder SESSION\r\n").await.unwrap();
    holder.read_exact(&mut [0]).await.unwrap();
    waiter.write_all(b"LOCK.ACQUIRE k waiter WAIT 60000\r\n").await.unwrap();
    let mut asking = server.stream();
    let mut seen = String::new();
    while !seen.contains("blocked_clients:1\r\n") {
        asking.write_all(b"INFO clients\r\n").await.unwrap();
        let mut bytes = Vec::new();
        asking.read_buf(&mut bytes).await.unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes));
    }
    server.stop();
    let mut said = String::new();
    waiter.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "-UNBLOCKED the server is shutting down\r\n");
    server.finished().await;
    assert!(server.keys().is_empty(), "the session has ended, and the lock with it");
}

#[test]
fn a_client_that_does_not_read_delays_the_end_by_shutdown_timeout_at_most() {
    for timeout in ["0", "1"] {
        let server = start(timeout);
        let _slow = slow_reader(&server);
        server.signal("TERM");
        let (code, said) = server.end_with_log();
        assert_eq!(code, Some(0));
        assert!(
            said.contains("have not read their last replies") && said.contains("connections=1"),
            "{said}"
        );
    }
}

#[test]
fn a_client_that_reads_gets_all_its_replies_before_the_end() {
    let server = start("60");
    let mut slow = slow_reader(&server);
    server.signal("TERM");
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    // Replies that were made before the end of the server are whole; the first byte has been read.
    let reply_bytes = "$8000001\r\n\r\n".len() + 8_000_001;
    assert!(rest.len() >= reply_bytes - 1 && (rest.len() + 1).is_multiple_of(reply_bytes), "{}", rest.len());
    let (code, said) = server.end_with_log();
    assert_eq!(code, Some(0));
    assert!(!said.contains("have not taken"), "{said}");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for second in ["TERM", "INT"] {
        let mut server = start("100000");
        let _slow = slow_reader(&server);
        server.signal("TERM");
        server.wait_for("Ending");
        server.signal(second);
        let (code, said) = server.end_with_log();
        assert_eq!(code, Some(1));
        assert!(said.contains("A second signal"), "{said}");
    }
}

#[cfg(feature = "http")]
#[test]
fn a_server_that_stops_is_alive_and_not_ready() {
    let arguments = ["--port", "auto", "--http-port", "auto", "--shutdown-timeout", "100000"];
    let mut server = Running::start(redlatch().args(arguments));
    let http = server.address_of("http");
    let status = |path: &str| {
        let mut stream = TcpStream::connect(&http).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!((&*status("/healthz"), &*status("/readyz")), ("200", "200"));
    let slow = slow_reader(&server);
    server.signal("TERM");
    server.wait_for("Ending");
    wait_until("it is not ready", || status("/readyz") == "503");
    assert_eq!(status("/healthz"), "200");
    drop(slow);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn shutdown_now_waits_for_nobody() {
    for threads in ["1", "3"] {
        let arguments = ["--port", "auto", "--shutdown-timeout", "100000", "--threads", threads];
        let server = Running::start(redlatch().args(arguments));
        // Connections go to the threads in turn.
        let _slow = [(); 3].map(|()| slow_reader(&server));
        server.connect().write_all(b"SHUTDOWN NOW\r\n").unwrap();
        assert_eq!(server.end(), Some(0), "{threads} threads");
    }
}

#[test]
fn the_time_limit_of_a_stop_can_be_changed_while_the_server_runs() {
    let server = start("100000");
    let _slow = slow_reader(&server);
    assert_eq!(server.ask("CONFIG SET shutdown-timeout 0"), "+OK\r\n");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
}
