//! Times as arguments write them.

use std::time::Duration;

use redlatch_proto::duration::duration;

use super::process::Fault;

/// Reads a time: `10s`, `500ms`, `2m`, `1h`; a bare number is in seconds.
///
/// # Errors
/// The text is not a time, or longer than 365 days.
pub(crate) fn read(text: &str) -> Result<Duration, Fault> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(EXPECTED.into()),
    };
    let number = number.parse::<u64>().ok().filter(|number| *number <= MAX_MS / millis);
    let number = number.ok_or_else(|| format!("{EXPECTED}, and at most 365 days"))?;
    Ok(Duration::from_millis(number * millis))
}

/// A time as people read it.
pub(crate) fn written(time: Duration) -> String {
    duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// What a time looks like.
pub(crate) const EXPECTED: &str = "must be a time such as 500ms, 10s, 2m or 1h";

const MAX_MS: u64 = 365 * 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        for (text, millis) in [("10", 10_000), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000), ("0", 0)] {
            assert_eq!(read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "1 s", "1d", "99999999999999999999", "18446744073709551615h"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
