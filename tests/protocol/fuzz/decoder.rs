//! The request decoder compared with redis-protocol's, and with itself on differently split input.
//!
//! Belongs here  decoding alone; the effects on a server are in `hostile`.

use proptest::collection::vec;
use proptest::prelude::*;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use redis_protocol::resp2::{decode, encode};
use redlatch_proto::resp::{Decoder, RequestLimits, likely_key};

const TRUST: RequestLimits =
    RequestLimits { bulk_bytes_max: 512 << 20, request_bytes_max: 1 << 30, authenticated: true };

type Words = Vec<Vec<u8>>;

/// Whole requests, truncated ones, and near misses.
pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    let requests = || vec(vec(word(), 0..6), 1..8).prop_map(|requests| encoded(&requests));
    let cut = (requests(), any::<prop::sample::Index>()).prop_map(|(mut bytes, cut)| {
        bytes.truncate(cut.index(bytes.len()));
        bytes
    });
    prop_oneof![3 => requests(), 2 => cut, 4 => almost_frames(), 1 => vec(any::<u8>(), 0..400)].boxed()
}

pub(crate) fn check(bytes: &[u8]) {
    let (requests, error) = ours(bytes, bytes.len());
    for piece in [1, 2, 7, 100] {
        assert_eq!(ours(bytes, piece), (requests.clone(), error.clone()), "in pieces of {piece}");
    }
    if let (Some(key), Some(first)) = (likely_key(bytes), requests.first()) {
        let at = if first[0].eq_ignore_ascii_case(b"EVALSHA") { 3 } else { 1 };
        assert_eq!(key, first[at], "the likely key of {first:?}");
    }
    let (theirs, taken) = theirs(bytes);
    assert!(requests.starts_with(&theirs), "{requests:?}, but redis-protocol says {theirs:?}");
    if taken == bytes.len() {
        assert_eq!((&requests, &error), (&theirs, &None), "whole requests and nothing else");
        // A prefix is incomplete and waits for more.
        let half = taken / 2;
        let (fewer, error) = ours(&bytes[..half], half);
        assert_eq!((requests.starts_with(&fewer), error), (true, None), "the first {half} bytes");
    }
}

/// The requests in `bytes`, which arrive in pieces of the given size, and the final error, if any.
fn ours(bytes: &[u8], piece: usize) -> (Vec<Words>, Option<String>) {
    let mut decoder = Decoder::new();
    let (mut buffer, mut requests) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&buffer, TRUST) {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    assert!((1..=buffer.len()).contains(&taken), "{taken} of {}", buffer.len());
                    let request = decoder.request(&buffer);
                    if !request.is_empty() {
                        requests.push(request.words().map(<[u8]>::to_vec).collect());
                    }
                    buffer.drain(..taken);
                }
                Err(error) => return (requests, Some(error.to_string())),
            }
        }
    }
    (requests, None)
}

/// The leading requests as redis-protocol reads them, and their length. They end at the first frame that clients do not
/// write: another type, or a number in another spelling.
fn theirs(bytes: &[u8]) -> (Vec<Words>, usize) {
    let (mut requests, mut at) = (Vec::new(), 0);
    while let Ok(Some((frame, taken))) = decode::decode(&bytes[at..]) {
        let OwnedFrame::Array(frames) = frame else { break };
        let words = frames.into_iter().map(|frame| match frame {
            OwnedFrame::BulkString(word) => Some(word),
            _ => None,
        });
        let Some(words) = words.collect::<Option<Words>>() else { break };
        if encoded(std::slice::from_ref(&words)) != bytes[at..at + taken] {
            break;
        }
        at += taken;
        if !words.is_empty() {
            requests.push(words);
        }
    }
    (requests, at)
}

fn encoded(requests: &[Words]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for words in requests {
        let frame = OwnedFrame::Array(words.iter().cloned().map(OwnedFrame::BulkString).collect());
        let start = bytes.len();
        bytes.resize(start + frame.encode_len(false), 0);
        encode::encode(&mut bytes[start..], &frame, false).expect("room for the frame");
    }
    bytes
}

/// Words of any bytes, often of the protocol's own.
fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        10 => vec(any::<u8>(), 0..40),
        2 => Just(b"EvalSha".to_vec()),
        10 => vec(prop::sample::select(b"*$\r\n:+-0123456789\"' ".to_vec()), 0..40),
        1 => vec(any::<u8>(), 1000..3000),
    ]
}

/// Bytes that begin like requests, which random bytes almost never do.
fn almost_frames() -> impl Strategy<Value = Vec<u8>> {
    const SCRAPS: &[&[u8]] = &[
        b"*1\r\n", b"*2\r\n", b"*-1\r\n", b"*2147483647\r\n", b"*9223372036854775807\r\n", b"$4\r\nPING\r\n",
        b"$0\r\n\r\n", b"$-1\r\n", b"$536870912\r\n", b"$18446744073709551615\r\n", b"\r\n", b"\r", b"\n",
        b"\0", b"*", b"$", b"PING \"a\\x4", b"'b' \"\\\"\"", b":1\r\n",
    ];
    let scrap = prop_oneof![
        4 => prop::sample::select(SCRAPS).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(scrap, 0..24).prop_map(|scraps| scraps.concat())
}
