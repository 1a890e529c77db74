//! Listening sockets that systemd hands over. A shell stands for it: it moves sockets to the numbers from 3 on.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use crate::support::binary::{Directory, Running, ask, redlatch, refusal};

/// A command that starts the binary with these sockets, which its standard input and error stand for, and these variables.
fn started_with(first: OwnedFd, second: Option<OwnedFd>, variables: &str, arguments: &[&str]) -> Command {
    let moves = if second.is_some() { "3<&0 4<&2 2>/dev/null" } else { "3<&0" };
    let script = format!("{variables} exec \"$0\" \"$@\" {moves} </dev/null");
    let program = redlatch();
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program.get_program()).args(arguments).stdin(first);
    for (name, _) in program.get_envs() {
        command.env_remove(name);
    }
    if let Some(second) = second {
        command.stderr(Stdio::from(second));
    }
    command
}

#[test]
fn clients_reach_the_sockets_that_were_handed_over_and_nothing_else_is_bound() {
    let directory = Directory::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let path = directory.path("socket");
    let unix = UnixListener::bind(&path).unwrap();
    let variables = "LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=redlatch:redlatch.socket";
    // The port is taken: it would be refused if it were bound.
    let port = address.port().to_string();
    let mut command = started_with(tcp.into(), Some(unix.into()), variables, &["--port", &port]);
    let server = Running::start(&mut command);
    assert_eq!((server.address(), server.address_of("unix")), (address.to_string(), path.clone()));
    assert_eq!(server.ask("PING"), "+PONG\r\n");
    assert_eq!(ask(UnixStream::connect(&path).unwrap(), "PING"), "+PONG\r\n");
    assert!(server.ask("INFO server").contains(&format!("tcp_port:{port}\r\n")));
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    assert!(std::fs::exists(&path).unwrap(), "the file belongs to the one who made it");
}

#[test]
fn a_client_that_connected_before_the_start_is_served() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let early = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let variables = "LISTEN_PID=$$ LISTEN_FDS=1";
    let _server = Running::start(&mut started_with(tcp.into(), None, variables, &["--port", "0"]));
    assert_eq!(ask(early, "PING"), "+PONG\r\n");
}

#[cfg(feature = "tls")]
#[test]
fn a_socket_named_tls_speaks_tls() {
    let directory = Directory::new();
    let (certificate, key) = crate::support::certificates::Authority::new("test").vouch("server");
    let (certificate, key) = (directory.write("crt", &certificate), directory.write("key", &key));
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tls.local_addr().unwrap();
    let variables = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=tls";
    let files = ["--tls-cert-file", &*certificate, "--tls-key-file", &*key, "--tls-auth-clients", "no"];
    let arguments = [&["--port", "0"], &files[..]].concat();
    let server = Running::start(&mut started_with(tls.into(), None, variables, &arguments));
    assert_eq!(server.address_of("tls"), address.to_string());
    let health = redlatch().args(["health", &format!("rediss://{address}"), "--insecure"]).output().unwrap();
    assert!(health.status.success(), "{health:?}");
}

#[cfg(feature = "http")]
#[test]
fn a_socket_named_http_answers_probes() {
    use std::io::Write;

    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = http.local_addr().unwrap();
    let variables = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http";
    let server = Running::start(&mut started_with(http.into(), None, variables, &["--port", "auto"]));
    assert_eq!(server.address_of("http"), address.to_string());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[cfg(feature = "http")]
#[test]
fn a_socket_named_http_has_descriptors_like_a_port_for_http() {
    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let variables = "ulimit -n 200; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http";
    let server = Running::start(&mut started_with(http.into(), None, variables, &["--port", "auto"]));
    // 32 are reserved for the server, 80 for HTTP, and 8 for clients on the same machine.
    let limits = server.ask("CONFIG GET maxclients");
    assert!(limits.contains("\r\n80\r\n"), "{limits}");
    let refused = server.ask("CONFIG SET maxclients 81");
    assert!(refused.contains("try with 80"), "{refused}");
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap().to_string();
    let variables = "LISTEN_PID=1 LISTEN_FDS=1";
    let server = Running::start(&mut started_with(tcp.into(), None, variables, &["--port", "auto"]));
    assert_ne!(server.address(), address);
}

#[test]
fn what_is_no_listening_socket_is_refused_in_one_sentence() {
    let listener = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let connected = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    };
    let file = OwnedFd::from(std::fs::File::open(env!("CARGO_BIN_EXE_redlatch")).unwrap());
    for (socket, variables, words) in [
        (listener(), "LISTEN_FDS=x", "LISTEN_FDS 'x': must be between 0 and 64"),
        (listener(), "LISTEN_FDS=1000000000", "must be between 0 and 64"),
        (listener(), "LISTEN_FDS=2", "socket 2 (redlatch)"),
        (listener(), "LISTEN_FDS=1 LISTEN_FDNAMES=a:b", "LISTEN_FDNAMES 'a:b': must name 1"),
        (listener(), "LISTEN_FDS=1 LISTEN_FDNAMES=metrics", "socket 1 (metrics): the name must be"),
        (connected, "LISTEN_FDS=1", "does not listen"),
        (file, "LISTEN_FDS=1", "not a socket"),
    ] {
        let variables = format!("LISTEN_PID=$$ {variables}");
        let output = started_with(socket, None, &variables, &["--port", "auto"]).output().unwrap();
        let said = refusal(&output);
        assert!(said.contains(words), "{variables}: {said}");
    }
}

#[test]
fn several_nodes_do_not_share_a_socket() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let arguments = ["--port", "auto", "--enable-test-commands", "local", "--nodes", "2"];
    let mut command = started_with(tcp.into(), None, "LISTEN_PID=$$ LISTEN_FDS=1", &arguments);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(1));
    assert!(said.contains("nodes: "), "{said}");
}
