//! A server inside of a program: started, used over a socket and by its handle, ended.
//!
//! `cargo run --example embedding`

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redlatch::Server;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A free port of its own; every setting of the command line can be set.
    let server = Server::builder().set("maxmemory", "64mb").start_blocking()?;
    println!("a server at {}", server.url());

    // Any Redis client can use it.
    let mut client = TcpStream::connect(server.addr())?;
    client.write_all(b"SET lock:stock worker-1 NX PX 30000\r\n")?;
    let mut answer = [0; 5];
    client.read_exact(&mut answer)?;
    assert_eq!(&answer, b"+OK\r\n");

    // The program looks at it, and changes it, without a client.
    let holder = server.keys().get("lock:stock").ok_or("the lock is held")?;
    println!("lock:stock is held by {}", String::from_utf8_lossy(&holder));
    server.keys().set("lock:orders", "the program itself", Some(Duration::from_secs(30)));
    client.write_all(b"SET lock:orders worker-1 NX PX 30000\r\n")?;
    client.read_exact(&mut answer)?;
    assert_eq!(&answer, b"$-1\r\n", "it is refused");

    // Dropped, it ends: its port is free again.
    let address = server.addr();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    println!("the server has ended");
    Ok(())
}
