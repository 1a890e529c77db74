//! The seed of the indexes inside values.
//!
//! Rule    whoever sends fields and members must not be able to choose them so that they collide: the seed comes from
//!         where the keyspace has its own. Nothing that anybody is shown follows from it but bytes in use: what is
//!         kept in an index is kept in the order in which it came.

use ahash::RandomState;

/// Seeds the hashes of a value's elements. Thirty-two bits fit where a small hash has room to spare, and are enough:
/// nobody is shown a hash, so nobody learns which of them it is.
#[derive(Clone, Copy, Debug)]
pub struct Seed(u32);

impl Seed {
    /// The one that follows from the seed of a keyspace, and is not that of its keys.
    pub const fn of(keyspace: u64) -> Self {
        let mixed = (keyspace ^ keyspace >> 32 ^ ODD).wrapping_mul(ODD);
        Self((mixed >> 32) as u32)
    }

    /// A hasher for one index.
    pub(super) fn hasher(self) -> RandomState {
        let [a, b, c, d] = [1_u64, 3, 5, 7].map(|odd| (u64::from(self.0) << 3 | odd).wrapping_mul(ODD));
        RandomState::with_seeds(a, b, c, d)
    }
}

/// An odd number without a pattern: to multiply by it mixes the bits and loses none.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn one_seed_always_makes_the_same_hashes_and_another_makes_others() {
        let hashes = |keyspace: u64| {
            [b"a".as_slice(), b"field"].map(|word| Seed::of(keyspace).hasher().hash_one(word))
        };
        assert_eq!(hashes(7), hashes(7));
        for other in [0, 1, 8, 7 << 32, u64::MAX] {
            assert_ne!(hashes(7), hashes(other), "{other}");
        }
    }
}
