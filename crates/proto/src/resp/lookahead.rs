//! The key of a request that is not decoded yet.
//!
//! Rule    a guess, from a few bytes: it may be wrong or missing, and nobody may rely on it.

use super::decode::short_line;

/// The second word of the request at the front of `bytes`, or the fourth of EVALSHA: the key of nearly all requests of lock
/// clients. `None` if the word has not arrived, or it or one before it has a hundred bytes or more.
#[inline]
pub fn likely_key(bytes: &[u8]) -> Option<&[u8]> {
    let (head, count) = short_line(b'*', bytes)?;
    let (name, mut rest) = short_word(bytes.get(head..)?)?;
    let at = if name.eq_ignore_ascii_case(b"EVALSHA") { 3 } else { 1 };
    for _ in 1..at {
        rest = short_word(rest)?.1;
    }
    short_word(rest).filter(|_| at < count).map(|(key, _)| key)
}

/// The word at the front, and what is behind it.
#[inline]
fn short_word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, length) = short_line(b'$', bytes)?;
    let (word, behind) = bytes.get(head..)?.split_at_checked(length)?;
    Some((word, behind.get(2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_lock_clients_request_is_found() {
        let set = b"*6\r\n$3\r\nSET\r\n$6\r\nlock:1\r\n$1\r\nx\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n";
        assert_eq!(likely_key(set), Some(&b"lock:1"[..]));
        let sha = "3".repeat(40);
        let release =
            format!("*4\r\n$7\r\nevalsha\r\n$40\r\n{sha}\r\n$1\r\n1\r\n$6\r\nlock:2\r\n$1\r\nx\r\n");
        assert_eq!(likely_key(release.as_bytes()), Some(&b"lock:2"[..]));
    }

    #[test]
    fn every_other_input_has_none() {
        let request = b"*2\r\n$3\r\nGET\r\n$6\r\nlock:1\r\n";
        for end in 0..request.len() {
            assert_eq!(likely_key(&request[..end]), None, "{end} bytes");
        }
        let next = "*1\r\n$4\r\nPING\r\n$3\r\nGET\r\n";
        for bytes in [
            "PING\r\n", next, "*0\r\n$4\r\nPING\r\n$1\r\na\r\n", "*2\r\n$-1\r\n",
            "*2\r\n$3\r\nGET\r\n$100\r\n", "\r\n", "*",
        ] {
            assert_eq!(likely_key(bytes.as_bytes()), None, "{bytes:?}");
        }
    }
}
