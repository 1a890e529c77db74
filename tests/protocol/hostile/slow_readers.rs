//! Clients that do not read their replies.

use super::fixture::{Fixture, MIB, costs_at_most};

#[test]
fn requests_of_a_client_that_does_not_read_wait() {
    costs_at_most(128, |look| {
        // Less than the size of output that the server gathers before it sends, so that its input runs empty.
        const VALUE: usize = MIB / 16;
        const REQUESTS: usize = 3200;
        let mut fixture = Fixture::set();
        fixture.server.keys().set("big", vec![b'v'; VALUE], None);
        let mut peer = fixture.peer();
        for _ in 0..REQUESTS {
            peer.send(b"GET big\r\n");
            assert_eq!(fixture.bystander.ask(b"PING\r\n"), "+PONG");
            look();
        }
        for _ in 0..REQUESTS {
            assert_eq!(peer.bulk(), VALUE);
        }
        assert_eq!(peer.ask(b"PING\r\n"), "+PONG");
    });
}

#[test]
fn read_output_is_released_while_more_arrives() {
    costs_at_most(128, |look| {
        const VALUE: usize = MIB;
        let mut fixture = Fixture::set();
        fixture.server.keys().set("big", vec![b'v'; VALUE], None);
        let mut peer = fixture.peer();
        // Sixteen requests stay ahead, so the output never runs empty.
        for _ in 0..16 {
            peer.send(b"GET big\r\n");
        }
        for _ in 0..300 {
            peer.send(b"GET big\r\n");
            assert_eq!(peer.bulk(), VALUE);
            look();
        }
        fixture.goes_on();
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_dropped() {
    costs_at_most(160, |look| {
        let mut fixture = Fixture::set();
        let mut peer = fixture.peer();
        peer.send(b"SUBSCRIBE news\r\n");
        (0..6).for_each(|_| drop(peer.line()));
        let message = vec![b'm'; MIB];
        for sent in 0.. {
            fixture.bystander.send(format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${MIB}\r\n").as_bytes());
            fixture.bystander.send(&message);
            if fixture.bystander.ask(b"\r\n") == ":0" {
                break;
            }
            assert!(sent < 128, "still subscribed after {sent} MiB");
            look();
        }
        fixture.goes_on();
    });
}
