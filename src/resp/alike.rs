//! Requests that are alike but for their words: as many, and each as long.
//!
//! Why     so are most in a pipeline. What has been understood of one holds for the next where the lines between its words
//!         are the same, and to compare them takes half as long as to read them.
//! Rule    what ends a word is not looked at, as it is not when a request is read.

use super::request::Span;

/// Whether `other`, which has the length of the request `one`, is alike: then its words lie where those of `one` do, at
/// `spans`. `false` says nothing but that a closer look is needed.
#[inline]
pub(super) fn are_alike(one: &[u8], other: &[u8], spans: &[Span]) -> bool {
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (Some(first), Some(same)) = (one.first_chunk(), other.first_chunk()) else { return false };
    let (mut line, mut longest, mut differ) = (first.len(), 0, number(first) ^ number(same));
    for span in spans {
        let start = span.start as usize;
        let before = |bytes: &[u8]| bytes.get(..start)?.last_chunk().map(number);
        let (Some(one), Some(other)) = (before(one), before(other)) else { return false };
        let length = start.wrapping_sub(line);
        longest = longest.max(length);
        // The last bytes are the highest. Where there are none, all eight are compared.
        differ |= (one ^ other).wrapping_shr(64_u32.wrapping_sub(8 * length as u32));
        line = span.end as usize + 2;
    }
    differ == 0 && longest <= first.len()
}

#[cfg(test)]
mod tests {
    use crate::resp::Decoder;
    use crate::resp::decode::tests::{OPEN, all};

    #[test]
    fn what_repeats_the_request_before_is_what_it_would_be_alone() {
        let frame = |words: &[&str]| {
            let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
            format!("*{}\r\n{}", words.len(), words.collect::<String>())
        };
        let long = "x".repeat(100);
        let kinds = [
            frame(&["GET", "a"]),
            frame(&["GET", "b"]),
            frame(&["GET", ""]),
            frame(&["GETEX", "$"]),
            frame(&["GET", "0123456789"]),
            frame(&["GET", &long]),
            frame(&["SET", "\r\n$1", "x"]),
            frame(&["ZREVRANGEBYSCORE", "a"]),
            frame(&["ZREVRANGEBYSCOR", "ab"]),
            frame(&["DEL", "a", "b", "c", "d", "e", "f", "g", "h", "i"]),
            frame(&["DEL", "a", "b", "c", "d", "e", "f", "g", "h", "j"]),
            // As long as the first, and no such request.
            "GET 'a' 'b' 'c' 'd'\n".to_owned(),
            "*0\r\n".to_owned(),
            "*-1\r\n".to_owned(),
            // What ends a word may be anything, as in Redis.
            "*2\r\n$3\r\nGET..$1\r\nc..".to_owned(),
        ];
        for (one, other) in kinds.iter().flat_map(|one| kinds.iter().map(move |other| (one, other))) {
            let bytes = [one.as_bytes(), other.as_bytes(), one.as_bytes(), one.as_bytes()].concat();
            let mut decoder = Decoder::new();
            assert_eq!(decoder.look_ahead(&bytes, OPEN), 4);
            let ahead = decoder.ahead(&bytes).map(|request| request.words().map(<[u8]>::to_vec).collect());
            assert_eq!(
                ahead.collect::<Vec<Vec<_>>>(),
                all(&bytes, bytes.len()).unwrap(),
                "{one:?} {other:?}"
            );
        }
        // Whoever is broken is found to be, though all before it are alike.
        for last in [
            "*2\r\n$3\r\nGET\r\n:1\r\na\r\n",
            "*2\r\n$3\r\nGET\r\n$x\r\na\r\n",
            "+2\r\n$3\r\nGET\r\n$1\r\na\r\n",
        ] {
            let bytes = [kinds[0].as_bytes(), kinds[1].as_bytes(), last.as_bytes()].concat();
            let mut decoder = Decoder::new();
            assert_eq!(decoder.look_ahead(&bytes, OPEN), all(&bytes, bytes.len()).map_or(2, |all| all.len()));
        }
    }
}
