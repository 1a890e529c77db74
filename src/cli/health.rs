//! `redlatch health`: whether a server is alive, for container health checks.
//!
//! Rule    a server that answers BUSY is alive. It runs a script, and a restart would lose every lock.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Fault;
use super::secure::{self, Stream, Trust};

/// How long a server may take for each step: to be connected to, to take a request, to answer it.
const STEP_MAX: Duration = Duration::from_secs(2);
/// More than any answer to AUTH or PING takes.
const ANSWER_BYTES_MAX: usize = 1024;

/// The address of a server, and the login.
#[derive(Debug, Default, Eq, PartialEq)]
struct Target {
    address: String,
    transport: Transport,
    user: String,
    password: String,
}

/// What carries the connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Transport {
    #[default]
    Tcp,
    Tls,
    Unix,
}

/// Asks the server at `url` for a PONG; without a URL, the server that the environment of this process would start.
/// Returns the text to print for a healthy server: empty if it answers PONG.
///
/// # Errors
/// The server cannot be reached or trusted, takes more than [`STEP_MAX`] for a step, or gives an answer that does not
/// show a working server.
pub(super) fn check(url: Option<&str>, trust: Trust) -> Result<String, Fault> {
    let (target, trust) = match url {
        Some(url) => (parse(url)?, trust),
        None => of_environment(|name| std::env::var(name).ok().filter(|value| !value.is_empty()), trust),
    };
    let address = &target.address;
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let stream: Box<dyn Stream> = match target.transport {
        Transport::Unix => {
            let stream = UnixStream::connect(address).map_err(failed)?;
            let timeouts = stream.set_read_timeout(Some(STEP_MAX));
            timeouts.and(stream.set_write_timeout(Some(STEP_MAX))).map_err(failed)?;
            Box::new(stream)
        }
        Transport::Tcp => Box::new(connect(address)?),
        Transport::Tls => {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            secure::handshake(connect(address)?, host.trim_matches(['[', ']']), &trust)?
        }
    };
    let answer = ask_for_pong(stream, &target);
    match answer.map_err(failed)?.as_str() {
        "+PONG" => Ok(String::new()),
        answer if is_alive(answer) => Ok(format!("{address} is alive: '{answer}'\n")),
        answer => Err(format!("{address} answers '{answer}'")),
    }
}

/// Whether an error reply shows a working server: a server that runs a long script, or a Redis that cannot save.
/// LOADING does not, because locks cannot be taken yet.
fn is_alive(answer: &str) -> bool {
    matches!(answer.split(' ').next(), Some("-BUSY" | "-MISCONF"))
}

fn connect(address: &str) -> Result<TcpStream, Fault> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let resolved = address.to_socket_addrs().map_err(failed)?.next();
    let resolved = resolved.ok_or_else(|| format!("{address}: no such host"))?;
    let stream = TcpStream::connect_timeout(&resolved, STEP_MAX).map_err(failed)?;
    let timeouts = stream.set_read_timeout(Some(STEP_MAX));
    timeouts.and(stream.set_write_timeout(Some(STEP_MAX))).map_err(failed)?;
    Ok(stream)
}

fn ask_for_pong(mut stream: impl Read + Write, target: &Target) -> std::io::Result<String> {
    if !target.password.is_empty() {
        let mut words = vec!["AUTH"];
        words.extend((!target.user.is_empty()).then_some(target.user.as_str()));
        words.push(&target.password);
        let answer = ask(&mut stream, &words)?;
        if answer != "+OK" {
            return Ok(answer);
        }
    }
    ask(&mut stream, &["PING"])
}

fn ask(stream: &mut (impl Read + Write), words: &[&str]) -> std::io::Result<String> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n") && answer.len() < ANSWER_BYTES_MAX {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(answer.trim_ascii_end()).into_owned())
}

fn of_environment(read: impl Fn(&str) -> Option<String>, trust: Trust) -> (Target, Trust) {
    let password = read("REDLATCH_REQUIREPASS").unwrap_or_default();
    let port_of = |name: &str| read(name).filter(|port| port.parse::<u16>().is_ok());
    let port = port_of("REDLATCH_PORT").unwrap_or_else(|| "6379".into());
    let tls_port = port_of("REDLATCH_TLS_PORT").filter(|port| port != "0");
    let target = |address, transport| Target { address, transport, password, user: String::new() };
    match (read("REDLATCH_UNIXSOCKET"), tls_port) {
        (Some(address), _) if port == "0" => (target(address, Transport::Unix), trust),
        (None, Some(tls_port)) if port == "0" => {
            // The server is on this machine. Its certificate may name other hosts, and serves as ours, too.
            let identity = read("REDLATCH_TLS_CERT_FILE").zip(read("REDLATCH_TLS_KEY_FILE"));
            let trust = Trust { accepts_any: true, identity: trust.identity.or(identity), ..trust };
            (target(format!("127.0.0.1:{tls_port}"), Transport::Tls), trust)
        }
        _ => (target(format!("127.0.0.1:{port}"), Transport::Tcp), trust),
    }
}

fn parse(url: &str) -> Result<Target, Fault> {
    let unfit = || format!("URL '{url}': must be redis[s]://[[user]:password@]host[:port] or unix:///path");
    let (scheme, rest) = url.split_once("://").ok_or_else(unfit)?;
    let transport = match scheme {
        "redis" => Transport::Tcp,
        "rediss" => Transport::Tls,
        "unix" => Transport::Unix,
        _ => return Err(unfit()),
    };
    let (login, address) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) = login.split_once(':').unwrap_or(("", login));
    let address = match address.split(['/', '?']).next() {
        Some(_) if transport == Transport::Unix => address.split('?').next().unwrap_or(address).to_owned(),
        Some("") | None => "127.0.0.1:6379".to_owned(),
        Some(host) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            host.to_owned()
        }
        Some(host) => format!("{host}:6379"),
    };
    if address.is_empty() {
        return Err(unfit());
    }
    Ok(Target { address, transport, user: decoded(user), password: decoded(password) })
}

/// The text without its percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let code = tail.get(..2).filter(|_| *byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_is_alive_and_one_that_refuses_the_login_is_not() {
        for (answer, expected) in [
            ("-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", true),
            ("-MISCONF Redis is configured to save RDB snapshots", true),
            ("-LOADING Redis is loading the dataset in memory", false),
            ("-NOAUTH Authentication required.", false),
            ("-WRONGPASS invalid username-password pair or user is disabled.", false),
            ("-BUSYKEY", false),
            ("", false),
        ] {
            assert_eq!(is_alive(answer), expected, "{answer}");
        }
    }

    #[test]
    fn a_url_names_the_address_and_the_login() {
        for (url, address, user, password) in [
            ("redis://", "127.0.0.1:6379", "", ""),
            ("redis://host", "host:6379", "", ""),
            ("redis://host:7000/0", "host:7000", "", ""),
            ("redis://:p%40ss@[::1]:7000", "[::1]:7000", "", "p@ss"),
            ("redis://me:secret@host", "host:6379", "me", "secret"),
            ("rediss://host:7000", "host:7000", "", ""),
            ("unix:///run/redlatch.sock", "/run/redlatch.sock", "", ""),
        ] {
            let target = parse(url).unwrap();
            assert_eq!(
                (&*target.address, &*target.user, &*target.password),
                (address, user, password),
                "{url}"
            );
        }
        for url in ["", "host:6379", "http://host", "unix://"] {
            assert!(parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn without_a_url_the_environment_names_the_server() {
        let target = |variables: &[(&str, &str)]| {
            let read = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            of_environment(read, Trust::default())
        };
        let address = |variables| target(variables).0.address;
        assert_eq!(address(&[("REDLATCH_PORT", "7000"), ("REDLATCH_TLS_PORT", "7001")]), "127.0.0.1:7000");
        assert_eq!(address(&[("REDLATCH_PORT", "0"), ("REDLATCH_UNIXSOCKET", "/run/it")]), "/run/it");
        let (tls, trust) = target(&[
            ("REDLATCH_PORT", "0"),
            ("REDLATCH_TLS_PORT", "7001"),
            ("REDLATCH_TLS_CERT_FILE", "c"),
            ("REDLATCH_TLS_KEY_FILE", "k"),
        ]);
        assert_eq!((&*tls.address, tls.transport), ("127.0.0.1:7001", Transport::Tls));
        assert_eq!(trust.identity, Some(("c".to_owned(), "k".to_owned())));
    }
}
