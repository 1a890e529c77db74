//! Clients that come through a standby: the leader knows their own addresses, and believes nobody else about them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use socket2::{Domain, Socket, Type};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::harness::{Etcd, Node, wait_until};
use super::takeover::pair;
use crate::support::binary::Directory;
use crate::support::certificates::Authority;
use crate::support::stream::{Peer, StreamClient};
use crate::support::words::info_field;

const PASSWORD: &str = "AUTH secret\r\n";

/// A client with this address of this machine.
fn client_of(ip: [u8; 4], node: &Node) -> Peer {
    Peer::over(stream_of(ip, node.address()))
}

fn stream_of(ip: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::from(ip), 0)).into()).expect("an address of this machine");
    socket.connect(&to.into()).expect("a node that accepts");
    socket.into()
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

/// What CLIENT INFO says to a client with TLS that trusts this authority.
async fn info_by_tls(authority: &Authority, stream: TcpStream) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    stream.set_nonblocking(true).expect("a socket that takes the option");
    let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(config).connect(name, stream).await.expect("a handshake");
    StreamClient::new(stream).text(&["CLIENT", "INFO"]).await
}

#[tokio::test]
#[ignore = "needs etcd"]
async fn a_client_of_a_standby_has_its_own_address_also_with_tls() {
    let (files, authority) = (Directory::new(), Authority::new("of clients"));
    let (certificate, key) = authority.vouch("server");
    let (certificate, key) = (files.write("server.crt", &certificate), files.write("server.key", &key));
    let etcd = Etcd::start_one(&[]);
    let start = |file: &str| {
        let tls = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-auth-clients", "no"];
        Node::start(&etcd, &[&tls[..], &["--tls-port", "auto", "--tls-port-file", file]].concat())
    };
    let (mut leader, file) = (start(&files.path("leader")), files.path("standby"));
    leader.wait_for("This node leads");
    let mut standby = start(&file);
    standby.wait_for("Another node leads");
    let port = std::fs::read_to_string(&file).expect("a port").trim().parse().expect("a number");
    let stream = stream_of([127, 0, 0, 2], (Ipv4Addr::LOCALHOST, port).into());
    let address = stream.local_addr().expect("an address");
    let info = info_by_tls(&authority, stream).await;
    assert!(info.contains(&format!(" addr={address} ")), "{info}");
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
