//! What the HTTP port of a node says while the node does not lead: that it lives, and who leads.
//!
//! Rule    metrics, the page and `/api` are those of the leader. A standby is alive and not ready.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::leader::Leader;
use super::splice::Door;
use crate::listener::Accepted;

/// How long a request may take.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// Bytes of a request line that are read.
const LINE_BYTES_MAX: u64 = 4096;

/// Answers one request in a task, and closes the connection.
pub(super) fn answer(accepted: Accepted, leader: Leader, place: OwnedSemaphorePermit) {
    if let Accepted::Tcp(stream, _) = accepted
        && let Ok(stream) = TcpStream::from_std(stream)
    {
        tokio::spawn(async move {
            let _place = place;
            // The peer may be gone.
            let _ = timeout(REQUEST_MAX, respond(stream, &leader)).await;
        });
    }
}

async fn respond(mut stream: TcpStream, leader: &Leader) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(LINE_BYTES_MAX)).read_line(&mut line).await?;
    let response = response(&line, leader);
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(LINE_BYTES_MAX);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
}

fn response(line: &str, leader: &Leader) -> String {
    let is_health = line.split(' ').nth(1).is_some_and(|path| path == "/healthz");
    let status = if is_health { "200 OK" } else { "503 Service Unavailable" };
    let text = match leader.address(Door::Plain).or_else(|| leader.address(Door::Tls)) {
        Some((_, address)) => format!("standby: {address} leads\n"),
        None => "standby: no node leads\n".to_owned(),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::leader::addresses;

    #[test]
    fn a_standby_is_alive_and_not_ready() {
        let leader = Leader { epoch: 2, addresses: addresses(Some("a:1"), None) };
        let health = response("GET /healthz HTTP/1.1\r\n", &leader);
        assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("standby: a:1 leads\n"));
        for line in ["GET /readyz HTTP/1.1", "GET /metrics HTTP/1.1", "", "x"] {
            assert!(response(line, &Leader::default()).starts_with("HTTP/1.1 503 "), "{line}");
        }
    }
}
