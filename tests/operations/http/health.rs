//! `/healthz` and `/readyz`: whether the process serves, and whether it grants locks.

use super::server;
use crate::support::http::{HttpClient, get};

#[test]
fn a_server_that_grants_locks_is_alive_and_ready() {
    let server = server(&[]);
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let reply = get(server.http_addr(), path);
        assert_eq!((reply.status, reply.body.as_str()), (200, body), "{path}");
    }
}

#[test]
fn the_port_ends_with_the_server() {
    let server = server(&[]);
    let address = server.http_addr();
    let mut open = HttpClient::to(address);
    assert_eq!(open.ask("GET", "/healthz", "").status, 200);
    server.stop();
    server.join();
    assert!(open.has_ended());
    assert!(std::net::TcpStream::connect(address).is_err());
}
