//! Clients that CLIENT PAUSE holds back.

use std::io::{ErrorKind, Write};

use super::fixture::{Fixture, Peer, costs_at_most};

#[test]
fn clients_that_leave_while_they_are_held_back_are_gone_and_their_requests_undone() {
    let mut fixture = Fixture::set();
    assert_eq!(fixture.bystander.ask(b"CLIENT PAUSE 9223372036854775807 WRITE\r\n"), "+OK");
    let held: Vec<Peer> = (0..20).map(|_| fixture.peer()).collect();
    for peer in &held {
        peer.send(b"SET k v\r\nSET k v\r\n");
    }
    fixture.until("connected_clients", |clients| clients == 21);
    drop(held);
    fixture.until("connected_clients", |clients| clients == 1);
    assert_eq!(fixture.bystander.ask(b"CLIENT UNPAUSE\r\n"), "+OK");
    assert!(fixture.server.keys().is_empty());
    fixture.goes_on();
}

#[test]
fn a_client_that_floods_while_it_is_held_back_is_not_read_from() {
    costs_at_most(64, |look| {
        let mut fixture = Fixture::set();
        assert_eq!(fixture.bystander.ask(b"CLIENT PAUSE 9223372036854775807 WRITE\r\n"), "+OK");
        let peer = fixture.peer();
        let sender = peer.stream().try_clone().unwrap();
        sender.set_nonblocking(true).unwrap();
        let flood = b"SET k 0123456789\r\n".repeat(10_000);
        let mut refused = 0;
        while refused < 100 {
            match (&sender).write(&flood) {
                Ok(_) => refused = 0,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    refused += 1;
                }
            }
            assert_eq!(fixture.bystander.ask(b"GET k\r\n"), "$-1");
            look();
        }
        assert_eq!(fixture.bystander.ask(b"CLIENT UNPAUSE\r\n"), "+OK");
        drop((peer, sender));
        fixture.goes_on();
    });
}
