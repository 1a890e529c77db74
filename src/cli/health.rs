//! `redlatch health`: whether a server answers, for container health checks.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Fault;

/// How long a server may take for each step.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than any answer to AUTH or PING takes.
const ANSWER_BYTES_MAX: usize = 1024;

/// Where a server is, and how to get in.
#[derive(Debug, Default, Eq, PartialEq)]
struct Target {
    place: String,
    is_unix: bool,
    user: String,
    password: String,
}

/// Asks the server at `url` for a PONG; without one, the server that the environment of this process would start.
///
/// # Errors
/// When it cannot be reached, takes more than [`PATIENCE`], or answers anything else.
pub(super) fn check(url: Option<&str>) -> Result<(), Fault> {
    let target = match url {
        Some(url) => parse(url)?,
        None => of_environment(|name| std::env::var(name).ok().filter(|value| !value.is_empty())),
    };
    let place = &target.place;
    let failed = |error: std::io::Error| format!("{place}: {error}");
    let answer = if target.is_unix {
        let stream = UnixStream::connect(place).map_err(failed)?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .and(stream.set_write_timeout(Some(PATIENCE)))
            .map_err(failed)?;
        talk(stream, &target)
    } else {
        let address = place.to_socket_addrs().map_err(failed)?.next();
        let address = address.ok_or_else(|| format!("{place}: no such host"))?;
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .and(stream.set_write_timeout(Some(PATIENCE)))
            .map_err(failed)?;
        talk(stream, &target)
    };
    match answer.map_err(failed)?.as_str() {
        "+PONG" => Ok(()),
        other => Err(format!("{place} answers '{other}'")),
    }
}

fn talk(mut stream: impl Read + Write, target: &Target) -> std::io::Result<String> {
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

fn of_environment(read: impl Fn(&str) -> Option<String>) -> Target {
    let password = read("REDLATCH_REQUIREPASS").unwrap_or_default();
    let port =
        read("REDLATCH_PORT").filter(|port| port.parse::<u16>().is_ok()).unwrap_or_else(|| "6379".into());
    match read("REDLATCH_UNIXSOCKET") {
        Some(place) if port == "0" => Target { place, is_unix: true, password, ..Target::default() },
        _ => Target { place: format!("127.0.0.1:{port}"), password, ..Target::default() },
    }
}

fn parse(url: &str) -> Result<Target, Fault> {
    let unfit = || format!("URL '{url}': must be redis://[[user]:password@]host[:port] or unix:///path");
    let (scheme, rest) = url.split_once("://").ok_or_else(unfit)?;
    let is_unix = match scheme {
        "redis" => false,
        "unix" => true,
        _ => return Err(unfit()),
    };
    let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) = login.split_once(':').unwrap_or(("", login));
    let place = match place.split(['/', '?']).next() {
        Some(_) if is_unix => place.split('?').next().unwrap_or(place).to_owned(),
        Some("") | None => "127.0.0.1:6379".to_owned(),
        Some(host) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            host.to_owned()
        }
        Some(host) => format!("{host}:6379"),
    };
    if place.is_empty() {
        return Err(unfit());
    }
    Ok(Target { place, is_unix, user: decoded(user), password: decoded(password) })
}

/// Undoes percent-encoding.
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
    fn an_address_says_where_and_how_to_get_in() {
        for (url, place, user, password) in [
            ("redis://", "127.0.0.1:6379", "", ""),
            ("redis://host", "host:6379", "", ""),
            ("redis://host:7000/0", "host:7000", "", ""),
            ("redis://:p%40ss@[::1]:7000", "[::1]:7000", "", "p@ss"),
            ("redis://me:secret@host", "host:6379", "me", "secret"),
            ("unix:///run/redlatch.sock", "/run/redlatch.sock", "", ""),
        ] {
            let target = parse(url).unwrap();
            assert_eq!((&*target.place, &*target.user, &*target.password), (place, user, password), "{url}");
        }
        for url in ["", "host:6379", "http://host", "unix://"] {
            assert!(parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn without_an_address_it_is_the_server_of_this_environment() {
        let target = of_environment(|name| (name == "REDLATCH_PORT").then(|| "7000".to_owned()));
        assert_eq!(target.place, "127.0.0.1:7000");
    }
}
