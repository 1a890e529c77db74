//! The grant record: who holds the lock that an entry is, with which token, since when.
//!
//! Owns    the packed form of a [`Grant`] in the header of an entry, and how numbers that were cut are widened again.
//! Knows   `clock`, and the number of a client.
//! Rule    a record keeps the low bits of numbers that only rise. The shard knows the highest number of each kind, and a
//!         number that is at most that and less than all the kept bits below it is restored exactly.

use redlatch_proto::clock::{Deadline, LockTime};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::state::clients::ClientId;
use crate::types::lock::LockKind;

pub use crate::types::lock::{Grant, GrantDetails};

/// A grant in the header of an entry. Flags of the header say whether there is one, and whether it is native.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Packed {
    /// [`TOKEN_BITS`] of the token, and above them the kind of the lock.
    token: [u8; 6],
    holder: U32,
    since: [u8; 5],
    /// Zero: no lease.
    lease_ms: U32,
    renewals: u8,
}

/// The index of a kind of lock, as a grant keeps it: 0 to 3.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LockKindIndex(u8);

impl From<LockKind> for LockKindIndex {
    #[inline]
    fn from(kind: LockKind) -> Self {
        Self(kind.index() as u8)
    }
}

impl From<LockKindIndex> for usize {
    #[inline]
    fn from(kind: LockKindIndex) -> Self {
        Self::from(kind.0)
    }
}

const _: () =
    assert!(LockKind::NAMES.len() <= 1 << (6 * u8::BITS - TOKEN_BITS), "a kind fits above the token");

/// Bits of a moment that a grant keeps.
const SINCE_BITS: u32 = 40;

/// Bits of a token that a grant keeps.
const TOKEN_BITS: u32 = 46;

/// The highest numbers in the grants of one shard. Packed grants are widened against them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latest {
    token: u64,
    holder: ClientId,
}

impl Packed {
    /// The record of an entry that is no lock.
    pub(crate) const NONE: Self =
        Self { token: [0; 6], holder: U32::ZERO, since: [0; 5], lease_ms: U32::ZERO, renewals: 0 };

    /// Keeps the low bits of a grant, and the kind of the lock.
    #[inline]
    pub(crate) fn of(grant: &Grant, kind: LockKindIndex) -> Self {
        let kept = grant.token & (u64::MAX >> (u64::BITS - TOKEN_BITS)) | u64::from(kind.0) << TOKEN_BITS;
        let [t0, t1, t2, t3, t4, t5, ..] = kept.to_le_bytes();
        let [s0, s1, s2, s3, s4, ..] = grant.since.as_millis().to_le_bytes();
        Self {
            token: [t0, t1, t2, t3, t4, t5],
            holder: (grant.holder as u32).into(),
            since: [s0, s1, s2, s3, s4],
            lease_ms: grant.lease_ms.unwrap_or(0).into(),
            renewals: grant.renewals,
        }
    }

    /// The kind of the lock when it was granted.
    #[inline]
    pub(crate) fn kind(&self) -> LockKindIndex {
        LockKindIndex(self.token[5] >> (TOKEN_BITS % u8::BITS))
    }

    /// The milliseconds from the grant to `ended`; zero if the grant seems to be later.
    #[inline]
    pub(crate) fn held_ms(&self, ended: LockTime) -> u64 {
        let [s0, s1, s2, s3, s4] = self.since;
        let since = u64::from_le_bytes([s0, s1, s2, s3, s4, 0, 0, 0]);
        let held = ended.as_millis().wrapping_sub(since) & (u64::MAX >> (u64::BITS - SINCE_BITS));
        if held >> (SINCE_BITS - 1) == 0 { held } else { 0 }
    }

    /// Whether it was granted to this client, as far as the bits say that were kept.
    #[inline]
    pub(crate) fn is_of(&self, client: ClientId) -> bool {
        self.holder.get() == client as u32
    }

    /// The lease was set anew. The first lease of a lock that had none is no renewal: SETNX, then EXPIRE.
    #[inline]
    pub(crate) fn renew(&mut self, lease_ms: Option<u32>) {
        self.renewals = self.renewals.saturating_add(u8::from(self.lease_ms.get() != 0));
        self.lease_ms = lease_ms.unwrap_or(0).into();
    }

    /// The grant, at a time of its shard and with the highest numbers that the shard has seen.
    pub(crate) fn widened(&self, latest: Latest, now: LockTime, is_native: bool) -> Grant {
        Grant {
            token: widen(&self.token, TOKEN_BITS, latest.token),
            holder: widen(self.holder.as_bytes(), u32::BITS, latest.holder),
            since: LockTime::from_millis(widen(&self.since, SINCE_BITS, now.as_millis())),
            lease_ms: Some(self.lease_ms.get()).filter(|millis| *millis > 0),
            renewals: self.renewals,
            is_native,
        }
    }
}

impl Latest {
    /// Notes the numbers of a new grant.
    #[inline]
    pub(crate) fn note(&mut self, token: u64, holder: ClientId) {
        self.token = self.token.max(token);
        self.holder = self.holder.max(holder);
    }
}

/// The milliseconds from `now` to a deadline, as a grant keeps them: at least 1, so that a lease is not taken for none.
#[inline]
pub(crate) fn lease_ms(deadline: Option<Deadline>, now: LockTime) -> Option<u32> {
    let millis = deadline?.time().millis_since(now);
    Some(u32::try_from(millis).unwrap_or(u32::MAX).max(1))
}

/// The highest number up to `latest` whose low bits are those of `low`. This is the number that was cut if it was at most
/// `latest`, and `latest` is not 2 to the power of `bits` or more above it.
#[inline]
fn widen(low: &[u8], bits: u32, latest: u64) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    bytes[..low.len()].copy_from_slice(low);
    let kept = u64::MAX >> (u64::BITS - bits);
    let behind = latest.wrapping_sub(u64::from_le_bytes(bytes)) & kept;
    latest.wrapping_sub(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed_and_widened(grant: Grant, latest: Latest, now_ms: u64) -> Grant {
        let kind = LockKindIndex::from(LockKind::Permits(2));
        let packed = Packed::of(&grant, kind);
        assert_eq!(packed.kind(), kind);
        packed.widened(latest, LockTime::from_millis(now_ms), grant.is_native)
    }

    #[test]
    fn the_time_that_a_lock_was_held_is_exact_and_never_negative() {
        let packed = |since_ms| {
            let since = LockTime::from_millis(since_ms);
            let grant = Grant { token: 1, holder: 1, since, lease_ms: None, renewals: 0, is_native: false };
            Packed::of(&grant, LockKind::Exclusive.into())
        };
        for since_ms in [0, 5, (1 << 40) - 1, (1 << 40) + 7] {
            for held_ms in [0, 1, 30_000, 1 << 38] {
                assert_eq!(packed(since_ms).held_ms(LockTime::from_millis(since_ms + held_ms)), held_ms);
            }
        }
        assert_eq!(packed(7).held_ms(LockTime::from_millis(6)), 0);
    }

    #[test]
    fn a_grant_comes_back_exactly_however_large_its_numbers_are() {
        // How far the latest number may be ahead: all kept bits of it.
        let [tokens, clients, millis] = [(1 << 46) - 1, (1 << 32) - 1, (1 << 40) - 1];
        for at in [1, 77, (1 << 32) - 1, 1 << 32, (1 << 40) + 5, 1 << 48, (1 << 60) + 12_345] {
            for later in [[0; 3], [1; 3], [65_536; 3], [tokens, clients, millis]] {
                let grant = Grant {
                    token: at,
                    holder: at + 1,
                    since: LockTime::from_millis(at + 2),
                    lease_ms: Some(30_000),
                    renewals: 3,
                    is_native: at % 2 == 1,
                };
                let latest = Latest { token: at + later[0], holder: at + 1 + later[1] };
                assert_eq!(packed_and_widened(grant, latest, at + 2 + later[2]), grant, "{later:?} later");
            }
        }
    }

    #[test]
    fn the_latest_numbers_never_fall() {
        let mut latest = Latest::default();
        latest.note(7, 100);
        latest.note(9, 30);
        latest.note(8, 40);
        assert_eq!((latest.token, latest.holder), (9, 100), "an old client may get a new token");
    }

    #[test]
    fn a_lease_is_at_least_a_millisecond_and_at_most_what_fits() {
        let now = LockTime::from_millis(1_000);
        let lease = |deadline_ms| lease_ms(Some(Deadline::at(LockTime::from_millis(deadline_ms))), now);
        assert_eq!(lease_ms(None, now), None);
        assert_eq!([500, 1_000, 1_001, 31_000].map(lease), [Some(1), Some(1), Some(1), Some(30_000)]);
        assert_eq!(lease(u64::MAX), Some(u32::MAX));
    }

    #[test]
    fn renewals_are_counted_up_to_255() {
        let mut packed = Packed::NONE;
        packed.renew(Some(7));
        assert_eq!((packed.renewals, packed.lease_ms.get()), (0, 7), "the first lease");
        for _ in 0..300 {
            packed.renew(Some(5));
        }
        assert_eq!((packed.renewals, packed.lease_ms.get()), (255, 5));
        packed.renew(None);
        assert_eq!(packed.lease_ms.get(), 0);
    }
}
