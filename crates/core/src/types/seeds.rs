//! The seed of the hash tables inside values.
//!
//! Rule    clients must not be able to choose fields or members that collide: the seed derives from the keyspace's seed.
//!         No reply depends on the seed, except bytes in use, because the tables keep the order of insertion.

use ahash::RandomState;

/// The seed of a value's hash table. 32 bits fit into the padding of a small hash, and are enough: no reply shows a hash.
#[derive(Clone, Copy, Debug)]
pub struct Seed(u32);

impl Seed {
    /// Derives the seed from the seed of a keyspace; it differs from the seed of the keys.
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

/// An odd number without a pattern: multiplying by it mixes the bits and loses none.
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
