//! More connections than allowed: beyond `maxclients`, beyond the descriptors of the process, and connections that close
//! before the server accepts them.

use std::io::Write;
use std::sync::Barrier;
use std::time::Duration;

use redlatch::Server;
use socket2::SockRef;

use super::fixture::{Fixture, Peer};
use crate::support::waits::wait_until;

const REFUSAL: &str = "-ERR max number of clients reached";

/// Whether a new connection is served. The only other allowed reply is the refusal by `maxclients`.
fn is_served(peer: &mut Peer) -> bool {
    // A refused connection may be closed before the request is sent, and still has its reply.
    let _ = peer.stream().write_all(b"PING\r\n");
    match peer.line().as_str() {
        "+PONG" => true,
        REFUSAL => false,
        other => panic!("a new connection was told {other}"),
    }
}

#[test]
fn there_are_never_more_clients_than_maxclients_however_many_come_at_once() {
    const MOST: usize = 50;
    const RESERVED: usize = 3;
    let builder = Server::builder().set("maxclients", (MOST - RESERVED).to_string());
    let server = builder.set("maxclients-reserved", RESERVED.to_string()).start_on_threads(4).unwrap();
    let begin = Barrier::new(8);
    let arrivals = || {
        begin.wait();
        let mut peers: Vec<Peer> = (0..20).map(|_| Peer::to(server.addr())).collect();
        peers.retain_mut(is_served);
        peers
    };
    let mut served: Vec<Peer> = std::thread::scope(|scope| {
        let crowds: Vec<_> = (0..8).map(|_| scope.spawn(arrivals)).collect();
        crowds.into_iter().flat_map(|crowd| crowd.join().unwrap()).collect()
    });
    assert_eq!(served.len(), MOST, "on the same machine some places more are reserved");
    assert_eq!(served[0].ask(b"CONFIG SET maxclients-reserved 0\r\n"), "+OK");
    drop(served.split_off(MOST - RESERVED));
    assert!(!is_served(&mut Peer::to(server.addr())), "the places beyond maxclients are no more");
    drop(served);
    // A closed connection frees its place; the server may notice late.
    wait_until("a client is served", || is_served(&mut Peer::to(server.addr())));
}

#[test]
fn a_flood_of_connections_that_are_reset_at_once_leaves_nothing_behind() {
    let mut fixture = Fixture::set();
    for round in 0..2000 {
        let peer = fixture.peer();
        SockRef::from(peer.stream()).set_linger(Some(Duration::ZERO)).unwrap();
        if round % 2 == 0 {
            peer.send(b"SET k v\r\nGET");
        }
    }
    fixture.until("connected_clients", |clients| clients == 1);
    fixture.goes_on();
}

#[cfg(all(feature = "cli", target_os = "linux"))]
mod of_a_process {
    use std::io::{BufRead, BufReader};
    use std::net::SocketAddr;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// The binary, a process with its own limits.
    struct Process {
        child: Child,
        address: SocketAddr,
        /// The log lines so far.
        said: String,
    }

    impl Process {
        /// Starts it from a shell that runs `first` before.
        fn start(first: &str) -> Self {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("{first}exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_redlatch")]);
            for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLATCH_")) {
                command.env_remove(name);
            }
            command.args(["--port", "auto", "--logfile", "", "--maxclients-reserved", "0"]);
            command.stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut log = BufReader::new(child.stdout.take().unwrap());
            let mut said = String::new();
            while !said.contains("Ready to accept connections") {
                assert!(log.read_line(&mut said).unwrap() > 0, "it ended too early:\n{said}");
            }
            let at = said.rfind("127.0.0.1:").unwrap();
            let end = |c: char| !(c.is_ascii_digit() || c == '.' || c == ':');
            let address = said[at..].split(end).next().unwrap().parse().unwrap();
            // The rest of the log is not read; it fits into the pipe.
            child.stdout = Some(log.into_inner());
            Self { child, address, said }
        }

        fn descriptors(&self) -> u64 {
            std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count() as u64
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn a_connection_without_a_free_descriptor_is_told_so_and_others_are_served_once_some_come_back() {
        const ROOM: u64 = 10;
        let process = Process::start("");
        let mut bystander = Peer::to(process.address);
        assert!(is_served(&mut bystander));
        let pid = process.child.id() as i32;
        let limit = process.descriptors() + ROOM;
        rlimit::prlimit(pid, rlimit::Resource::NOFILE, Some((limit, limit)), None).unwrap();
        for _ in 0..3 {
            let mut peers: Vec<Peer> = (0..100).map(|_| Peer::to(process.address)).collect();
            peers.retain_mut(is_served);
            assert!((1..2 * ROOM as usize).contains(&peers.len()), "{} were served", peers.len());
            assert!(is_served(&mut bystander), "and whoever is served goes on being served");
            drop(peers);
            wait_until("a client is served", || is_served(&mut Peer::to(process.address)));
        }
    }

    #[test]
    fn maxclients_is_no_more_than_the_limit_of_open_files_allows() {
        let process = Process::start("ulimit -n 64; ");
        assert!(process.said.contains("maxclients lowered to what 'ulimit -n' allows"), "{}", process.said);
        let mut peer = Peer::to(process.address);
        peer.send(b"CONFIG GET maxclients\r\n");
        let answer: Vec<String> = (0..5).map(|_| peer.line()).collect();
        assert_eq!(answer[4], "32");
        assert_eq!(
            peer.ask(b"CONFIG SET maxclients 33\r\n"),
            "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not \
             able to handle the specified number of clients, try with 32"
        );
        let both = peer.ask(b"CONFIG SET maxclients-reserved 0 maxclients 33\r\n");
        assert!(both.contains("'maxclients')") && both.ends_with("try with 32"), "{both}");
        // The limit is one of maxclients, not of each setting whose name begins with it.
        assert_eq!(peer.ask(b"CONFIG SET maxclients-reserved 40\r\n"), "+OK");
        assert_eq!(peer.ask(b"CONFIG SET maxclients-reserved 0\r\n"), "+OK");
        assert_eq!(peer.ask(b"CONFIG SET maxclients 31\r\n"), "+OK");
        let mut peers: Vec<Peer> = (0..40).map(|_| Peer::to(process.address)).collect();
        peers.retain_mut(is_served);
        assert_eq!(peers.len(), 30, "and the one who asks");
    }
}
