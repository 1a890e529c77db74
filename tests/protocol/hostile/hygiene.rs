//! One reply per request, in order, and no request byte at the start of a reply line.

use super::fixture::{Fixture, Peer};
use crate::support::words::request;

/// All bytes up to the reply to a final ECHO.
fn all_said(peer: &mut Peer, requests: &[u8]) -> String {
    String::from_utf8(peer.answers(requests).unwrap()).unwrap()
}

#[test]
fn a_failed_auth_in_a_pipeline_is_answered_in_its_place() {
    let fixture = Fixture::with(&[("requirepass", "secret")]);
    let mut peer = fixture.peer();
    peer.send(
        b"PING\r\nAUTH wrong\r\nPING\r\nHELLO 3 AUTH default wrong\r\nAUTH secret\r\nAUTH wrong\r\nPING\r\n",
    );
    let heard: Vec<String> = (0..7).map(|_| peer.line().split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(heard, ["-NOAUTH", "-WRONGPASS", "-NOAUTH", "-WRONGPASS", "+OK", "-WRONGPASS", "+PONG"]);
}

#[test]
fn every_request_of_a_broken_pipeline_has_one_reply_in_its_place() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    let wrong: &[&[&[u8]]] = &[
        &[b"NOSUCH", b"a"],
        &[b"GET"],
        &[b"GET", b"a", b"b"],
        &[b"INCRBY", b"n", b"x"],
        &[b"EVAL", b"error('x')", b"0"],
        &[b"EVAL", b"return redis.error_reply('x')", b"0"],
        &[b"EVAL", b"return {err='x'}", b"0"],
        &[b"EVAL", b"return redis.call('nosuch')", b"0"],
        &[b"EVAL", b"error({})", b"0"],
        &[b"EVAL", b"(", b"0"],
        &[b"EVALSHA", b"x", b"0"],
        &[b"CONFIG", b"SET", b"timeout", b"x"],
        &[b"CLIENT", b"NOSUCH"],
        &[b"SELECT", b"99"],
        &[b"EXEC"],
        &[b"HELLO", b"9"],
    ];
    for words in wrong {
        peer.send(&[request(words), b"INCR n\r\n".to_vec()].concat());
    }
    for (number, words) in (1..).zip(wrong) {
        let name = String::from_utf8_lossy(words[0]);
        let answer = peer.line();
        assert!(answer.starts_with('-'), "{name}: {answer}");
        assert_eq!(peer.line(), format!(":{number}"), "after {name}");
    }
    fixture.goes_on();
}

#[test]
fn no_line_break_of_a_request_breaks_a_line_of_an_answer() {
    const BREAK: &[u8] = b"a\r\n+OK\r\n:1\n\r$-1\r\n";
    let mut fixture = Fixture::set();
    let script = |text: &str| request::<&[u8]>(&[b"EVAL", text.as_bytes(), b"0", BREAK]);
    let requests = [
        request(&[BREAK]),
        request::<&[u8]>(&[b"NOSUCH", BREAK]),
        request::<&[u8]>(&[b"CLIENT", BREAK]),
        request::<&[u8]>(&[b"CONFIG", b"SET", BREAK, b"1"]),
        request::<&[u8]>(&[b"CONFIG", b"SET", b"timeout", BREAK]),
        request::<&[u8]>(&[b"CONFIG", b"SET", b"loglevel", BREAK]),
        request::<&[u8]>(&[b"CLIENT", b"SETNAME", BREAK]),
        request::<&[u8]>(&[b"CLIENT", b"LIST", b"TYPE", BREAK]),
        request::<&[u8]>(&[b"FUNCTION", b"LOAD", BREAK, BREAK]),
        request::<&[u8]>(&[b"FUNCTION", b"LOAD", &[b"#!lua name=", BREAK].concat()]),
        request::<&[u8]>(&[b"EVAL", &[b"#!", BREAK].concat(), b"0"]),
        request::<&[u8]>(&[b"EVAL", &[b"#!lua flags=", BREAK, b"\n"].concat(), b"0"]),
        request::<&[u8]>(&[b"EVAL", &[b"x = ", BREAK].concat(), b"0"]),
        request::<&[u8]>(&[b"SCRIPT", BREAK]),
        request::<&[u8]>(&[b"OBJECT", BREAK, BREAK]),
        script("return redis.error_reply(ARGV[1])"),
        script("return redis.status_reply(ARGV[1])"),
        script("return {err=ARGV[1]}"),
        script("return {ok=ARGV[1]}"),
        script("error(ARGV[1])"),
        script("error({err=ARGV[1]})"),
        script("return redis.pcall(ARGV[1])"),
        script("return redis.call('CONFIG', ARGV[1])"),
        script("return redis.pcall('INCRBY', 'n', ARGV[1])"),
    ];
    let mut peer = fixture.peer();
    for words in &requests {
        let heard = all_said(&mut peer, words);
        assert!(heard.starts_with(['-', '+']), "{}: {heard:?}", words.escape_ascii());
        assert_eq!(heard.find(['\r', '\n']), Some(heard.len() - 2), "{}: {heard:?}", words.escape_ascii());
    }
    fixture.goes_on();
}

#[test]
fn an_http_request_is_neither_executed_nor_answered() {
    let mut fixture = Fixture::set();
    for head in
        ["POST / HTTP/1.1", "post /", "GET / HTTP/1.1\r\nHost: localhost", "PUT /x HTTP/1.1\r\nhOST: x"]
    {
        let mut peer = fixture.peer();
        peer.send(format!("{head}\r\nContent-Length: 20\r\n\r\nSET lock you\r\n").as_bytes());
        let heard = peer.rest();
        // The first line that begins with GET or PUT is a request like any other; nothing after `Host:` is carried out.
        assert!(heard.is_empty() || heard.starts_with(b"-ERR"), "{}", heard.escape_ascii());
        assert!(fixture.server.keys().get("lock").is_none());
    }
    fixture.goes_on();
}
