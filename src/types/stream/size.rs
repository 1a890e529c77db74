//! How many bytes a node of a stream takes in Redis: that decides where nodes end, and with `~` trimming takes away
//! whole nodes, which clients see.
//!
//! Source  Redis 7.0 `listpack.c`: `lpEncodeIntegerGetType`, `lpEncodeGetType`, `lpEncodeBacklen`.

use crate::number;

/// An empty listpack: its header and its end.
pub(super) const EMPTY: usize = 7;

/// Bytes of an integer in a listpack.
pub(super) fn integer(value: i64) -> usize {
    const I24_MAX: i64 = (1 << 23) - 1;
    let encoded = match value {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=I24_MAX => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    };
    // The length behind it takes one byte.
    encoded + 1
}

/// Bytes of a string in a listpack, which keeps it as an integer if it spells one.
pub(super) fn text(text: &[u8]) -> usize {
    if let Some(value) = number::integer(text) {
        return integer(value);
    }
    let encoded = match text.len() {
        len @ 0..64 => 1 + len,
        len @ 64..4096 => 2 + len,
        len => 5 + len,
    };
    let behind = match encoded {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    encoded + behind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_a_listpack() {
        for (value, bytes) in [(0, 2), (127, 2), (128, 3), (-1, 3), (4095, 3), (4096, 4), (-32_769, 5)] {
            assert_eq!(integer(value), bytes, "{value}");
            assert_eq!(text(value.to_string().as_bytes()), bytes, "{value}");
        }
        for (value, bytes) in [(1 << 23, 6), (1 << 31, 10), (i64::MIN, 10)] {
            assert_eq!(integer(value), bytes, "{value}");
        }
        for (len, bytes) in [(0, 2), (1, 3), (63, 65), (64, 67), (126, 130), (4095, 4099), (4096, 4103)] {
            assert_eq!(text(&vec![b'x'; len]), bytes, "{len}");
        }
        assert_eq!(text(b"01"), 4);
    }
}
