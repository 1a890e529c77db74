//! How commands say when a key ends: EX, PX, EXAT, PXAT, and their bounds.
//!
//! Source  Redis 7.0: `parseExtendedStringArgumentsOrReply`, `getExpireMillisecondsOrReply`.

use super::Args;
use crate::clock::{Deadline, Now};
use crate::error::Refusal;
use crate::number;

/// The unit of a number of a command, and whether it counts from now.
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
    /// The unit that an option of SET or GETEX names.
    pub(super) fn of_option(word: &[u8]) -> Option<Self> {
        let options =
            [("PX", Self::Millis), ("EX", Self::Secs), ("PXAT", Self::UnixMillis), ("EXAT", Self::UnixSecs)];
        options
            .into_iter()
            .find(|(option, _)| word.eq_ignore_ascii_case(option.as_bytes()))
            .map(|(_, unit)| unit)
    }

    const fn millis(self) -> i64 {
        match self {
            Self::Millis | Self::UnixMillis => 1,
            Self::Secs | Self::UnixSecs => 1000,
        }
    }

    const fn is_absolute(self) -> bool {
        matches!(self, Self::UnixMillis | Self::UnixSecs)
    }

    /// The moment that `value` of this unit names, as a Unix time in milliseconds; `None` beyond 64 bits.
    pub(super) fn unix_millis(self, value: i64, now: Now) -> Option<i64> {
        let millis = value.checked_mul(self.millis())?;
        if self.is_absolute() { Some(millis) } else { millis.checked_add(now.wall().as_millis() as i64) }
    }

    /// The deadline that `value` of this unit names: exact for what counts from now, whatever the wall clock does.
    ///
    /// # Errors
    /// [`Refusal::ExpireTime`] when it lies beyond 64 bits.
    pub(super) fn deadline(self, value: i64, now: Now, command: &'static str) -> Result<Deadline, Refusal> {
        let unix_ms = self.unix_millis(value, now).ok_or(Refusal::ExpireTime(command))?;
        if self.is_absolute() {
            return Ok(now.deadline_at_wall(unix_ms));
        }
        Ok(now.deadline_in(value * self.millis()))
    }
}

/// A lease for SET and its kin: the number must be an integer above zero.
///
/// # Errors
/// [`Refusal::NotAnInteger`], [`Refusal::ExpireTime`], or [`Refusal::Syntax`] when the number is missing.
pub(super) fn lease(unit: Unit, value: &[u8], now: Now, command: &'static str) -> Result<Deadline, Refusal> {
    let value = number::integer(value).ok_or(Refusal::NotAnInteger)?;
    if value <= 0 {
        return Err(Refusal::ExpireTime(command));
    }
    unit.deadline(value, now, command)
}

/// A time option at the front of `args` with its number, not yet looked at: options are checked before values.
///
/// # Errors
/// [`Refusal::Syntax`] when the number is missing.
pub(super) fn option<'a>(args: &mut Args<'a>) -> Result<Option<(Unit, &'a [u8])>, Refusal> {
    let Some(unit) = args.peek().and_then(Unit::of_option) else { return Ok(None) };
    args.word()?;
    Ok(Some((unit, args.word()?)))
}
