//! Hash slots: which of the 16384 slots of a Redis Cluster a key is in.
//!
//! Source  Redis 7.0 `cluster.c`, `keyHashSlot`.

use std::ops::RangeInclusive;

use crc::{CRC_16_XMODEM, Crc};

/// The number of slots.
pub const SLOTS: u16 = 16_384;

static CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key, or of a shard channel. Names with the same hash tag have the same slot: the tag is what stands
/// between the first `{` and the next `}`, unless that is nothing.
pub fn slot(name: &[u8]) -> u16 {
    CRC16.checksum(tag(name).unwrap_or(name)) % SLOTS
}

/// All slots, shared out evenly in so many ranges: those of `redis-cli --cluster create`.
pub fn ranges(count: u16) -> impl Iterator<Item = RangeInclusive<u16>> {
    let share = f64::from(SLOTS) / f64::from(count);
    let end = move |number: u16| (f64::from(number) * share).round() as u16;
    (0..count).map(move |number| end(number)..=end(number + 1) - 1)
}

fn tag(name: &[u8]) -> Option<&[u8]> {
    let (_, behind) = name.split_at(name.iter().position(|byte| *byte == b'{')?);
    let inside = &behind[1..behind.iter().position(|byte| *byte == b'}')?];
    (!inside.is_empty()).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots are the answers of Redis 7.0.15 to CLUSTER KEYSLOT.
    #[test]
    fn a_slot_is_the_one_that_redis_computes() {
        for (name, expected) in [
            (&b""[..], 0),
            (b"a", 15_495),
            (b"123456789", 12_739),
            (b"{a}b", 15_495),
            (b"{}a", 10_875),
            (b"a{b", 13_340),
            (b"a}{b}c", 3_300),
            (b"{{a}}", 10_276),
            (b"\x00\xff{x\x00}", 496),
        ] {
            assert_eq!(slot(name), expected, "{}", name.escape_ascii());
        }
    }
}
