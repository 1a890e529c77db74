//! Blocking pops on a server with threads and sockets: an element reaches one client, whichever thread serves it.
//!
//! Belongs here  what threads can do wrong. The order of waiters is in `simulation/waits.rs`, single cases are transcripts.

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
