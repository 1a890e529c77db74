//! What it costs to find requests in bytes, and to write replies: nothing else happens here.
//!
//! The decoder is shown whole requests, a pipeline, and one request that comes byte by byte; beside it, for comparison,
//! the decoder of the `redis-protocol` crate, which is the tests' oracle.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use redis_protocol::resp2::decode::decode as other_decode;
use redlatch::internals::resp::{Decoder, Protocol, Reply, RequestLimits};

const TRUST: RequestLimits =
    RequestLimits { bulk_bytes_max: 512 << 20, request_bytes_max: 1 << 30, authenticated: true };
const ACQUIRE: &[u8] =
    b"*6\r\n$3\r\nSET\r\n$10\r\nlock:stock\r\n$36\r\n3b241101-e2bb-4255-8caf-4136c566a962\r\n\
    $2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n";
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$10\r\nlock:stock\r\n";
const INLINE: &[u8] = b"SET lock:stock 3b241101-e2bb-4255-8caf-4136c566a962 NX PX 30000\r\n";

/// Decodes every request in `bytes` and returns how many words they have together.
fn decode(decoder: &mut Decoder, mut bytes: &[u8]) -> usize {
    let mut words = 0;
    loop {
        let Some(taken) = decoder.next(bytes, TRUST).expect("good requests") else { return words };
        words += decoder.request(bytes).len();
        bytes = &bytes[taken..];
    }
}

/// The same with the other decoder; the frames together.
fn decode_elsewhere(mut bytes: &[u8]) -> usize {
    let mut frames = 0;
    while let Some((_, taken)) = other_decode(bytes).expect("good requests") {
        frames += 1;
        bytes = &bytes[taken..];
    }
    frames
}

/// Decodes one request that arrives a byte at a time.
fn decode_slowly(decoder: &mut Decoder, bytes: &[u8]) -> usize {
    for end in 1..bytes.len() {
        assert_eq!(decoder.next(&bytes[..end], TRUST).expect("a good request"), None);
    }
    decode(decoder, bytes)
}

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    let mut decoder = Decoder::new();
    let large = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$65536\r\n".as_slice(), &[b'x'; 65_536], b"\r\n"].concat();
    let cases = [
        ("GET", GET.to_vec()),
        ("SET NX PX", ACQUIRE.to_vec()),
        ("SET NX PX inline", INLINE.to_vec()),
        ("SET NX PX, 16 in a pipeline", ACQUIRE.repeat(16)),
        ("SET of 64 KiB", large),
    ];
    for (name, bytes) in cases {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("redlatch", name), |bencher| {
            bencher.iter(|| decode(&mut decoder, black_box(&bytes)));
        });
        if !name.ends_with("inline") {
            group.bench_function(BenchmarkId::new("redis-protocol", name), |bencher| {
                bencher.iter(|| decode_elsewhere(black_box(&bytes)));
            });
        }
    }
    group.throughput(Throughput::Bytes(ACQUIRE.len() as u64));
    group.bench_function(BenchmarkId::new("redlatch", "SET NX PX byte by byte"), |bencher| {
        bencher.iter(|| decode_slowly(&mut decoder, black_box(ACQUIRE)));
    });
    group.finish();
}

/// Writes a reply; the bytes are there for replies that have some.
type Write = fn(&mut Reply<'_>, &[u8]);

fn encoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    let mut out = Vec::with_capacity(4096);
    let token = [b'x'; 36];
    let cases: [(&str, Write); 5] = [
        ("OK", |reply, _| reply.ok()),
        ("nothing", |reply, _| reply.null()),
        ("an integer", |reply, _| reply.integer(black_box(1_700_000_000_000))),
        ("a token", |reply, token| reply.bulk(token)),
        ("an array of 16 tokens", |reply, token| reply.bulks(&[token; 16])),
    ];
    for (name, write) in cases {
        for (version, protocol) in [("RESP2", Protocol::Resp2), ("RESP3", Protocol::Resp3)] {
            group.bench_function(BenchmarkId::new(name, version), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    write(&mut Reply::new(&mut out, protocol), black_box(&token));
                    out.len()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decoding, encoding);
criterion_main!(benches);
