//! Servers that break the protocol: each costs its own connection, in bounded memory, and an exit code that says so.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use redis_protocol::resp2::types::OwnedFrame;

use super::{Holder, run};
use crate::support::binary::{ended, redlatch};
use crate::support::wire::Link;

/// A server that treats every connection so; ends with the test's process.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    url
}

/// Writes until the client goes.
fn flood(mut stream: TcpStream, bytes: &[u8]) {
    while stream.write_all(bytes).is_ok() {}
}

#[test]
fn a_server_that_breaks_the_protocol_is_no_server() {
    let answers: [(&str, &str); 6] = [
        ("garbage", "HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("a length beyond all bounds", "$99999999999999999999\r\n"),
        ("a wrong number", ":many\r\n"),
        ("a wrong protocol", "*1\r\n!x\r\n"),
        ("an error", "-NOAUTH Authentication required.\r\n"),
        ("nothing", ""),
    ];
    for (name, answer) in answers {
        let url = server(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        });
        let (code, _, said) = ended(run(&url, &["lock:a", "--", "true"]));
        let expected = if name == "an error" { 77 } else { 69 };
        assert_eq!((code, said.lines().count()), (Some(expected), 1), "{name}: {said}");
        let mut health = redlatch();
        health.args(["health", &url]);
        // One that asks for a login is alive.
        assert_eq!(ended(health).0, Some(i32::from(name != "an error")), "{name}");
    }
}

#[test]
fn a_reply_without_end_is_cut_off() {
    let endless: [&'static [u8]; 4] =
        [&[b'+'; 4096], &[b'x'; 4096], b"*1\r\n", b"*9999999\r\n:1\r\n:1\r\n:1\r\n"];
    for bytes in endless {
        let url = server(|stream| flood(stream, bytes));
        let (code, _, said) = ended(run(&url, &["lock:a", "--", "true"]));
        assert_eq!(code, Some(69), "{said}");
    }
}

#[test]
fn a_server_that_fails_after_the_grant_costs_the_lock_and_ends_the_command() {
    // A server without LOCK commands, which grants the lock and then answers a renewal with garbage.
    let url = server(|stream| {
        let mut raw = stream.try_clone().unwrap();
        let mut link = Link::over(stream).unwrap();
        while let Ok(OwnedFrame::Array(words)) = link.next() {
            let answer: &[u8] = match &words[0] {
                OwnedFrame::BulkString(word) if word == b"SET" => b"+OK\r\n",
                OwnedFrame::BulkString(word) if word == b"EVAL" => b"\x00\xff\x00",
                _ => b"-ERR unknown command\r\n",
            };
            if raw.write_all(answer).is_err() {
                return;
            }
        }
    });
    let script = ["sh", "-c", "echo ready; exec tail -f /dev/null"];
    let holder = Holder::start(run(&url, &[&["--lease", "500ms", "lock:a", "--"], &script[..]].concat()));
    let (code, said) = holder.end();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("no LOCK commands") && said.contains("no renewal has succeeded"), "{said}");
}
