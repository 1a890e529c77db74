//! Clients that come through a standby: the leader knows their own addresses, and believes nobody else about them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use super::harness::{Etcd, Node, wait_until};
use super::takeover::pair;
use crate::support::stream::Peer;
use crate::support::words::info_field;

const PASSWORD: &str = "AUTH secret\r\n";

/// A client with this address of this machine.
fn client_of(ip: [u8; 4], node: &Node) -> Peer {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::from(ip), 0)).into()).expect("an address of this machine");
    socket.connect(&node.address().into()).expect("a node that accepts");
    Peer::over(socket.into())
}

fn guess(peer: &mut Peer, n: usize) -> String {
    peer.ask(format!("AUTH guess-{n}\r\n").as_bytes())
}

#[test]
#[ignore = "needs etcd"]
fn a_client_of_a_standby_has_its_own_address_and_delays_no_stranger() {
    let etcd = Etcd::start_one(&[]);
    // A login that is delayed for as long does not come to its turn in this test.
    let settings = ["--requirepass", "secret", "--login-delay", "60000"];
    let (mut leader, standby) = pair(&etcd, &settings);
    let mut known = client_of([127, 0, 0, 3], &standby);
    assert_eq!(known.ask(PASSWORD.as_bytes()), "+OK");
    let address = known.0.get_ref().local_addr().expect("an address").to_string();
    assert!(known.text(b"CLIENT INFO\r\n").contains(&format!(" addr={address} ")));
    assert_eq!(known.text(b"CLIENT LIST\r\n").matches(" addr=127.0.0.3:").count(), 1);

    let mut guesser = client_of([127, 0, 0, 2], &standby);
    (0..30).for_each(|n| assert!(guess(&mut guesser, n).starts_with("-WRONGPASS")));
    guesser.send(b"AUTH guess-30\r\n");
    leader.wait_for("Logins are delayed");
    wait_until("a login that waits", || info_field(&known.text(b"INFO clients\r\n"), "blocked_clients") == 1);
    for ip in [[127, 0, 0, 1], [127, 0, 0, 3]] {
        assert_eq!(client_of(ip, &standby).ask(PASSWORD.as_bytes()), "+OK", "{ip:?}");
    }
    assert_eq!(client_of([127, 0, 0, 1], &leader).ask(PASSWORD.as_bytes()), "+OK", "that of the standby");
}

#[test]
#[ignore = "needs etcd"]
fn who_does_not_have_the_key_of_the_cluster_passes_no_address_on() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &[]);
    let (hello, introduction) = (b"\0redlatch node 1", [7; 50]);
    let mut stranger = TcpStream::connect(leader.address()).expect("a leader");
    stranger.write_all(hello).expect("a leader that reads");
    stranger.read_exact(&mut [0; 32]).expect("a challenge");
    stranger.write_all(&introduction).expect("a leader that reads");
    let mut told = Vec::new();
    let ended = stranger.read_to_end(&mut told);
    assert!(told.is_empty(), "{told:?}: {ended:?}");
    leader.wait_for("a client's address was passed on without the key of the cluster");

    // One that a standby has passed on is not believed either.
    let mut client = TcpStream::connect(standby.address()).expect("a standby");
    client.write_all(hello).expect("a standby that reads");
    let ended = client.read_to_end(&mut told);
    assert!(told.is_empty(), "{told:?}: {ended:?}");
    assert!(standby.acquire("lock", "me").is_some());
}
