//! The settings of HTTP as the program takes them: port file, ready line, Unix socket, refusals.

use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::support::binary::{Directory, Running, redlatch, refusal};
use crate::support::http::{HttpClient, get};
use crate::support::waits::wait_until_async;

#[test]
fn the_port_is_in_its_file_in_the_log_and_in_the_ready_line() {
    let directory = Directory::new();
    let file = directory.path("http.port");
    let arguments = ["--port", "auto", "--http-port", "auto", "--http-port-file", &file];
    let server = Running::start(redlatch().args(arguments));
    let address: std::net::SocketAddr = server.address_of("http").parse().unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", address.port()));
    assert_eq!(get(address, "/readyz").status, 200);
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    assert!(!std::path::Path::new(&file).exists(), "the file of a server that has ended is gone");

    let mut command = redlatch();
    command.args(["--port", "auto", "--http-port", "auto", "--ready-json"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(process.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let port = u16::try_from(ready["http_port"].as_u64().unwrap()).unwrap();
    assert_eq!(get(([127, 0, 0, 1], port).into(), "/healthz").status, 200);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_unix_socket_is_asked_under_any_host_and_removed_at_the_end() {
    let directory = Directory::new();
    let path = directory.path("http.sock");
    let arguments = ["--port", "auto", "--http-unixsocket", &path, "--http-token", "secret"];
    let server = Running::start(redlatch().args(arguments));
    let mut client = HttpClient(std::io::BufReader::new(UnixStream::connect(&path).unwrap()));
    client.send(b"GET /readyz HTTP/1.1\r\nHost: anything.example\r\n\r\n");
    assert_eq!(client.reply(true).status, 200);
    client.send(b"GET /metrics HTTP/1.1\r\nHost: anything.example\r\n\r\n");
    assert_eq!(client.reply(true).status, 401);
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn a_port_in_use_and_a_bind_without_an_address_are_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = |arguments: &[&str]| refusal(&redlatch().args(arguments).output().unwrap());
    let text = refused(&["--port", "auto", "--http-port", &port]);
    assert!(text.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{text}");
    let text = refused(&["--port", "auto", "--http-port", "auto", "--http-bind", "locks.example.com"]);
    assert!(text.contains("http-bind 'locks.example.com': must name at least one IP address"), "{text}");
}

#[test]
fn the_token_is_in_no_log() {
    let server = Running::start(redlatch().args([
        "--port", "auto", "--http-port", "auto", "--http-token", "first-secret", "--loglevel", "debug",
    ]));
    assert_eq!(server.ask("CONFIG SET http-token second-secret"), "+OK\r\n");
    let address = server.address_of("http").parse().unwrap();
    let header = "Authorization: Bearer third-secret\r\n";
    assert_eq!(HttpClient::to(address).ask("GET", "/metrics", header).status, 401);
    assert!(!server.ask("SLOWLOG GET").contains("second-secret"));
    server.signal("TERM");
    let (_, log) = server.end_with_log();
    assert!(log.contains("HTTP requests with a wrong password or token"), "{log}");
    assert!(!log.contains("-secret"), "{log}");
}

#[tokio::test]
async fn a_start_that_fails_late_leaves_no_listener_in_the_runtime_of_its_caller() {
    let directory = Directory::new();
    let path = directory.path("redlatch.sock");
    let settings = [("port", "0"), ("unixsocket", &path), ("http-port", "auto"), ("http-port-file", "/")];
    let builder = settings
        .iter()
        .fold(redlatch::Server::builder(), |builder, (name, value)| builder.set(*name, *value));
    let error = builder.start_here_and_on(0).unwrap_err();
    assert!(error.to_string().contains("cannot write the port to '/'"), "{error}");
    // It has been there: the file of the HTTP port is the last thing that a start writes.
    wait_until_async("the socket is closed", async || UnixStream::connect(&path).is_err()).await;
}
