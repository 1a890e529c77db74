//! The decoder of requests against redis-protocol's, and against anything at all.
//!
//! Belongs here  what is said about bytes alone; what they do to a server stands in `hostile.rs`.

use proptest::collection::vec;
use proptest::prelude::*;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use redis_protocol::resp2::{decode, encode};
use redlatch::resp::{Decoder, Trust};

const TRUST: Trust = Trust { bulk_bytes_max: 512 << 20, request_bytes_max: 1 << 30, authenticated: true };

type Words = Vec<Vec<u8>>;

/// The requests in `bytes`, which arrive in the given pieces, and the error they end with if they do.
fn ours(bytes: &[u8], pieces: &[usize]) -> (Vec<Words>, Option<String>) {
    let mut decoder = Decoder::new();
    let (mut buffer, mut requests) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut pieces = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let piece = pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        buffer.extend_from_slice(&rest[..piece]);
        rest = &rest[piece..];
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

/// What redis-protocol makes of `bytes`, which hold whole frames alone.
fn theirs(mut bytes: &[u8]) -> Vec<Words> {
    let mut requests = Vec::new();
    while let Some((frame, taken)) = decode::decode(bytes).expect("a valid frame") {
        bytes = &bytes[taken..];
        let OwnedFrame::Array(frames) = frame else { panic!("no request: {frame:?}") };
        let words: Words = frames
            .into_iter()
            .map(|word| match word {
                OwnedFrame::BulkString(word) => word,
                other => panic!("no word: {other:?}"),
            })
            .collect();
        if !words.is_empty() {
            requests.push(words);
        }
        if bytes.is_empty() {
            break;
        }
    }
    requests
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
        vec(any::<u8>(), 0..40),
        vec(prop::sample::select(b"*$\r\n:+-0123456789\"' ".to_vec()), 0..40),
        vec(any::<u8>(), 1000..3000),
    ]
}

/// Bytes that look like requests for a while: what a random byte string almost never does.
fn almost_frames() -> impl Strategy<Value = Vec<u8>> {
    const SCRAPS: &[&[u8]] = &[
        b"*1\r\n",
        b"*2\r\n",
        b"*-1\r\n",
        b"*2147483647\r\n",
        b"*9223372036854775807\r\n",
        b"$4\r\nPING\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"$536870912\r\n",
        b"$18446744073709551615\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b"*",
        b"$",
        b"PING \"a\\x4",
        b"'b' \"\\\"\"",
        b":1\r\n",
    ];
    let scrap = prop_oneof![
        4 => prop::sample::select(SCRAPS).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(scrap, 0..24).prop_map(|scraps| scraps.concat())
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![Just(1_usize), 1..8_usize, 1..2000_usize], 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_requests_decode_as_redis_protocol_decodes_them_however_they_arrive(
        requests in vec(vec(word(), 0..6), 1..8),
        pieces in pieces(),
    ) {
        let bytes = encoded(&requests);
        let (ours, error) = ours(&bytes, &pieces);
        prop_assert_eq!(error, None);
        prop_assert_eq!(&ours, &theirs(&bytes));
        let written: Vec<Words> = requests.into_iter().filter(|words| !words.is_empty()).collect();
        prop_assert_eq!(ours, written);
    }

    #[test]
    fn a_cut_request_is_waited_for_and_nothing_else(words in vec(word(), 1..6), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&[words]);
        let cut = cut.index(bytes.len());
        prop_assert_eq!(ours(&bytes[..cut], &[usize::MAX]), (Vec::new(), None));
    }

    #[test]
    fn what_bytes_mean_does_not_depend_on_how_they_arrive(bytes in almost_frames(), pieces in pieces()) {
        prop_assert_eq!(ours(&bytes, &pieces), ours(&bytes, &[usize::MAX]));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in vec(any::<u8>(), 0..400), pieces in pieces()) {
        prop_assert_eq!(ours(&bytes, &pieces), ours(&bytes, &[usize::MAX]));
    }
}
