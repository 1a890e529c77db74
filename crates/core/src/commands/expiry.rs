//! The expiry options of commands, EX, PX, EXAT, PXAT, and their bounds.
//!
//! Source  Redis 7.0: `parseExtendedStringArgumentsOrReply`, `getExpireMillisecondsOrReply`.

use redlatch_proto::clock::{Deadline, Now};
use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::Args;
use crate::commands::args;
use crate::commands::row::{Arg, integer, one_of, token, unix_time};
use crate::keyspace::{Occupied, View};

/// The argument of a command that changes a lease or removes it.
pub(super) const NEW_LEASE: Arg = one_of(
    "expiration",
    &[
        integer("seconds").after("EX"),
        integer("milliseconds").after("PX"),
        unix_time("unix-time-seconds").after("EXAT"),
        unix_time("unix-time-milliseconds").after("PXAT"),
        token("persist", "PERSIST"),
    ],
);

/// The argument of a command that sets a value with a lease, or keeps the lease.
pub(super) const LEASE: Arg = one_of(
    "expiration",
    &[
        integer("seconds").after("EX"),
        integer("milliseconds").after("PX"),
        unix_time("unix-time-seconds").after("EXAT"),
        unix_time("unix-time-milliseconds").after("PXAT"),
        token("keepttl", "KEEPTTL"),
    ],
);

/// The unit of an expiry, and whether it counts from now or from the Unix epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unit {
    /// Milliseconds from now.
    Millis,
    /// Seconds from now.
    Secs,
    /// Milliseconds since the Unix epoch.
    UnixMillis,
    /// Seconds since the Unix epoch.
    UnixSecs,
}

impl Unit {
    const fn millis(self) -> i64 {
        match self {
            Self::Millis | Self::UnixMillis => 1,
            Self::Secs | Self::UnixSecs => 1000,
        }
    }

    /// True if it counts from the Unix epoch.
    pub(super) const fn is_absolute(self) -> bool {
        matches!(self, Self::UnixMillis | Self::UnixSecs)
    }

    /// The moment that `value` stands for, as Unix milliseconds; `None` beyond 64 bits.
    pub(super) fn unix_millis(self, value: i64, now: Now) -> Option<i64> {
        let millis = value.checked_mul(self.millis())?;
        if self.is_absolute() { Some(millis) } else { millis.checked_add(now.wall().as_millis() as i64) }
    }

    /// The deadline that `value` stands for. A relative one does not depend on the wall clock.
    ///
    /// # Errors
    /// [`Refusal::ExpireTime`] beyond 64 bits.
    pub(super) fn deadline(self, value: i64, now: Now, command: &'static str) -> Result<Deadline, Refusal> {
        let unix_ms = self.unix_millis(value, now).ok_or(Refusal::ExpireTime(command))?;
        if self.is_absolute() {
            return Ok(now.deadline_at_wall(unix_ms));
        }
        Ok(now.deadline_in(value.saturating_mul(self.millis())))
    }
}

/// The deadline of SET, GETEX and similar: the number must be a positive integer.
///
/// # Errors
/// [`Refusal::NotAnInteger`], [`Refusal::ExpireTime`].
pub(super) fn lease(unit: Unit, value: &[u8], now: Now, command: &'static str) -> Result<Deadline, Refusal> {
    let value = number::integer(value).ok_or(Refusal::NotAnInteger)?;
    if value <= 0 {
        return Err(Refusal::ExpireTime(command));
    }
    unit.deadline(value, now, command)
}

/// The lease option of SET or GETEX. Its number is not parsed yet, because options are checked before values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeaseOption<'a> {
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Persist,
    /// There is no option.
    Absent,
    /// EX, PX, EXAT or PXAT, and the number after it.
    Until(Unit, &'a [u8]),
}

impl<'a> LeaseOption<'a> {
    /// Reads `option` and its number if it is a lease option. Returns false if it is another option.
    ///
    /// As in Redis, an option may be repeated, and the last number counts. Two different options are an error.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] if two options differ or a number is missing.
    pub(super) fn take(&mut self, option: u64, args: &mut Args<'a>) -> Result<bool, Refusal> {
        const KEEPTTL: u64 = args::option(b"KEEPTTL");
        const PERSIST: u64 = args::option(b"PERSIST");
        const EX: u64 = args::option(b"EX");
        const PX: u64 = args::option(b"PX");
        const EXAT: u64 = args::option(b"EXAT");
        const PXAT: u64 = args::option(b"PXAT");
        let new = match option {
            KEEPTTL => Self::Keep,
            PERSIST => Self::Persist,
            EX => Self::Until(Unit::Secs, args.word()?),
            PX => Self::Until(Unit::Millis, args.word()?),
            EXAT => Self::Until(Unit::UnixSecs, args.word()?),
            PXAT => Self::Until(Unit::UnixMillis, args.word()?),
            _ => return Ok(false),
        };
        match (*self, new) {
            (Self::Absent, _) => {}
            (Self::Until(old, _), Self::Until(new, _)) if old == new => {}
            (old, new) if old == new => {}
            _ => return Err(Refusal::Syntax),
        }
        *self = new;
        Ok(true)
    }
}

/// Sets the deadline of a key, or deletes the key if the deadline has passed.
///
/// # Errors
/// The key is a lock that has a lease of its own.
pub(super) fn set_or_delete(found: &mut Occupied<'_>, deadline: Deadline, now: Now) -> Result<(), Refusal> {
    refuse_own_lease(found)?;
    // Redis deletes a key whose lease ends now, and publishes the event of a deletion.
    if deadline.time() <= now.lock {
        found.event(b'g', "del");
        found.remove_entry();
    } else {
        found.set_deadline(Some(deadline));
        found.event(b'g', "expire");
    }
    Ok(())
}

/// Removes the deadline of a key. Returns false if there was none.
///
/// # Errors
/// As [`set_or_delete`].
pub(super) fn persist(view: &mut View<'_>, name: &[u8]) -> Result<bool, Refusal> {
    let Some(mut found) = view.entry(name).occupied() else { return Ok(false) };
    refuse_own_lease(&found)?;
    if found.deadline().is_none() {
        return Ok(false);
    }
    found.set_deadline(None);
    found.event(b'g', "persist");
    Ok(true)
}

/// A lock whose holders have leases of their own, or a session, has no second one.
#[inline]
fn refuse_own_lease(found: &Occupied<'_>) -> Result<(), Refusal> {
    if found.has_own_lease() {
        return Err(Refusal::said(
            "ERR the lease of this lock is that of its holders: use LOCK.EXTEND, LOCK.RELEASE or LOCK.BREAK",
        ));
    }
    Ok(())
}
