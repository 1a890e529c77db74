//! A test of a program in cluster mode: three nodes in one process, a slot that moves, a node that crashes.
//!
//! `cargo run --example cluster`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use redlatch::Server;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().cluster(3).start_blocking()?;
    let nodes = server.node_addrs();

    // A key belongs to one node. The others say which: a client in cluster mode goes there.
    let take = |owner: &str| format!("SET stock {owner} NX PX 30000");
    let slot = ask(nodes[0], "CLUSTER KEYSLOT stock")?[1..].to_owned();
    let moved = format!("-MOVED {slot} ");
    let answers: Vec<String> = nodes.iter().map(|node| ask(*node, &take("a"))).collect::<Result<_, _>>()?;
    let home = answers.iter().position(|answer| answer == "+OK").ok_or("one of the nodes has the slot")?;
    assert_eq!(answers.iter().filter(|answer| answer.starts_with(&moved)).count(), 2);
    println!("node {} has the slot of the lock, {slot}", home + 1);

    // The slot moves to the next node, and the lock with it: nobody else gets it.
    let next = (home + 1) % nodes.len();
    assert_eq!(ask(nodes[next], &format!("TEST.SLOT MOVE {slot} TO {}", next + 1))?, ":1");
    assert_eq!(ask(nodes[home], &take("b"))?, format!("{moved}{}", nodes[next]));
    assert_eq!(ask(nodes[next], &take("b"))?, "$-1", "the lock is held, here as there");

    // That node crashes. Like a Redis without a journal it forgets its locks: what a test of fencing tokens needs.
    assert_eq!(ask(nodes[home], &format!("TEST.NODE CRASH {}", next + 1))?, "+OK");
    assert!(ask(nodes[next], "PING").is_err(), "nobody answers");
    assert_eq!(ask(nodes[home], &format!("TEST.NODE START {}", next + 1))?, "+OK");
    assert_eq!(ask(nodes[next], &take("b"))?, "+OK");
    println!("after the crash of node {} there are two who believe that they have the lock", next + 1);
    Ok(())
}

/// The first line that a node answers.
fn ask(node: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut client = TcpStream::connect(node)?;
    client.write_all(format!("{request}\r\n").as_bytes())?;
    let mut line = String::new();
    match BufReader::new(client).read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
