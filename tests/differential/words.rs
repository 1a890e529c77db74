//! The words that requests are filled with: few keys, so that types collide; values on every edge.

use redlatch::internals::commands::row::Group;

use crate::support::rng::Rng;

/// A key, mostly one that holds what commands of the group want.
pub(crate) fn key(group: Group, rng: &mut Rng) -> Vec<u8> {
    let pool: &[&[u8]] = match group {
        Group::Hash => &[b"h0", b"h1"],
        Group::List => &[b"l0", b"l1"],
        Group::Set => &[b"t0", b"t1", b"t2"],
        Group::SortedSet => &[b"z0", b"z1"],
        Group::Stream => &[b"x0", b"x1"],
        _ => &[b"k0", b"k1", b"n0"],
    };
    let any: &[&[u8]] = &[b"k0", b"n0", b"h0", b"l0", b"t0", b"z0", b"x0", b"nobody", b"", b"\x00\xff\r\n"];
    let is_usual = rng.below(12) > 0;
    rng.pick(if is_usual { pool } else { any }).to_vec()
}

/// A member, field, element or value.
pub(crate) fn text(rng: &mut Rng) -> Vec<u8> {
    match rng.below(40) {
        0 => vec![b'x'; 64],
        1 => vec![b'y'; 65],
        2 => b"\x00\x01\xfe\r\n\"\\".to_vec(),
        3 => INTEGERS[rng.below(INTEGERS.len())].to_vec(),
        4 => DOUBLES[rng.below(DOUBLES.len())].to_vec(),
        5 => vec![b'z'; 3_000],
        6..14 => (rng.below(12) as i64 - 3).to_string().into_bytes(),
        _ => rng.pick(TEXTS).to_vec(),
    }
}

/// An integer, mostly a small one.
pub(crate) fn integer(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0 => rng.pick(INTEGERS).to_vec(),
        1 => rng.below(200).to_string().into_bytes(),
        _ => (rng.below(9) as i64 - 3).to_string().into_bytes(),
    }
}

/// A number, mostly a plain one.
pub(crate) fn double(rng: &mut Rng) -> Vec<u8> {
    match rng.below(6) {
        0 => rng.pick(DOUBLES).to_vec(),
        1 => format!("{}.{}", rng.below(20) as i64 - 10, rng.below(1_000)).into_bytes(),
        _ => (rng.below(7) as i64 - 2).to_string().into_bytes(),
    }
}

/// The bound of a range of scores, members or ranks; what it is of, the caller does not know.
pub(crate) fn bound(rng: &mut Rng) -> Vec<u8> {
    match rng.below(4) {
        0 => integer(rng),
        _ => rng.pick(BOUNDS).to_vec(),
    }
}

/// Seconds or milliseconds to live: so many that nothing ends during a run, or what is refused or ends at once. No two
/// are alike, so what is greater does not hang on how long a run took.
pub(crate) fn lease(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => rng.pick(&[b"0" as &[u8], b"-1", b"-9223372036854775808", b"9223372036854775807"]).to_vec(),
        1 => rng.pick(&[b"" as &[u8], b"abc", b"1.5", b"9223372036854775808", b"-0", b" 7"]).to_vec(),
        _ => (100_000_000 + 1_000 * rng.below(1_000_000)).to_string().into_bytes(),
    }
}

/// How long a call may wait: for ever, if it is not refused.
pub(crate) fn timeout(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => rng.pick(REFUSED_WAITS).to_vec(),
        _ => b"0".to_vec(),
    }
}

pub(crate) const REFUSED_WAITS: &[&[u8]] = &[b"-1", b"", b"abc", b"nan", b"-inf", b"-0.5", b"1e308", b" 1"];

/// The id of an entry of a stream, or the bound of a range of them; not one that the clock makes.
pub(crate) fn stream_id(rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => rng.pick(IDS).to_vec(),
        1 => format!("{}-*", rng.below(9)).into_bytes(),
        _ => format!("{}-{}", rng.below(9), rng.below(4)).into_bytes(),
    }
}

const IDS: &[&[u8]] = &[
    b"-",
    b"+",
    b"0",
    b"5",
    b"0-0",
    b"0-1",
    b"(1",
    b"(5-5",
    b"(",
    b"1-",
    b"-1",
    b"1-1-1",
    b"abc",
    b"",
    b"18446744073709551615-18446744073709551615",
    b"18446744073709551615",
    b"18446744073709551616-1",
    b"99-*",
];

/// A Unix time in seconds or milliseconds: long ago, or long after the run.
pub(crate) fn unix_time(is_millis: bool, rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(5) {
        return lease(rng);
    }
    let seconds = 4_102_444_800 + 1_000 * rng.below(1_000_000);
    (if is_millis { seconds * 1_000 } else { seconds }).to_string().into_bytes()
}

pub(crate) const TEXTS: &[&[u8]] =
    &[b"a", b"b", b"c", b"d", b"e", b"A", b"ab", b"", b"me", b"you", b"1.5", b"007", b"+1", b"10000000000"];

pub(crate) const PATTERNS: &[&[u8]] = &[
    b"*", b"?", b"k*", b"[a-c]*", b"[^k]*", b"*0", b"\\*", b"[", b"[a", b"a\\", b"", b"h?", b"[z-a]*",
    b"**a**",
];

const INTEGERS: &[&[u8]] = &[
    b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"-9223372036854775809",
    b"4294967296", b"-0", b"+1", b"01", b" 1", b"1 ", b"", b"abc", b"1.0", b"1e3",
    b"99999999999999999999999",
];

const DOUBLES: &[&[u8]] = &[
    b"inf", b"-inf", b"+inf", b"Infinity", b"nan", b"-nan", b"1e308", b"-1e308", b"1e309", b"1e-400",
    b"5e-324", b"0.1", b"-0", b"-0.0", b"3.0e2", b".5", b"5.", b" 1", b"1 ", b"", b"abc", b"1e",
    b"9007199254740993", b"9223372036854775807", b"17179869184.000001", b"1.7976931348623157e308",
    b"123456789012345678901234567890",
];

const BOUNDS: &[&[u8]] = &[
    b"-inf", b"+inf", b"inf", b"(1", b"(-1", b"(0", b"(inf", b"1.5", b"[a", b"[c", b"(b", b"(a", b"[", b"(",
    b"-", b"+", b"0", b"-1", b"abc", b"", b"nan", b"(nan", b"[\x00\xff", b"(1 ", b" 1", b"5",
];
