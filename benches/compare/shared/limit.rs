//! `limit`: a server that understands where a request ends and answers `+OK`, and does nothing else.
//!
//! Owns    the minimum work of any server: one read and one write per batch, and one look at each byte.
//! Rule    requests are framed as a real server must: in any number of pieces, many at once, inline or not.
//!
//! The race runs it as its own process: the same program with `--as-limit PORT`.

use std::io;
use std::net::Ipv4Addr;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) fn serve(port: u16) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        println!("Ready to accept connections");
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async {
                // A failed client does not affect the server.
                drop(answer(stream).await);
            });
        }
    })
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (BytesMut::with_capacity(BUFFER_BYTES), Vec::with_capacity(BUFFER_BYTES));
    while stream.read_buf(&mut input).await? > 0 {
        output.clear();
        let mut at = 0;
        while let Some(length) = framed(&input[at..])? {
            at += length;
            output.extend_from_slice(b"+OK\r\n");
        }
        let _ = input.split_to(at);
        input.reserve(BUFFER_BYTES / 2);
        if !output.is_empty() {
            stream.write_all(&output).await?;
        }
    }
    Ok(())
}

/// How many bytes the first request has; `None` if some are still to come.
pub(crate) fn framed(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some((head, mut at)) = line(bytes) else { return Ok(None) };
    let Some(count) = head.strip_prefix(b"*") else { return Ok(Some(at)) };
    for _ in 0..number(count)? {
        let Some((head, length)) = line(&bytes[at..]) else { return Ok(None) };
        let size = head.strip_prefix(b"$").ok_or_else(|| io::Error::other("a request has strings alone"))?;
        at += length + number(size)? + 2;
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The line in front without its end, and its bytes with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), end + 1))
}

fn number(digits: &[u8]) -> io::Result<usize> {
    let is_number = !digits.is_empty() && digits.len() <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit);
    let value = || digits.iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
    is_number.then(value).ok_or_else(|| io::Error::other("a length is a number"))
}

const BUFFER_BYTES: usize = 16 * 1024;
/// The longest length line: more than any server accepts.
const DIGITS_MAX: usize = 9;
