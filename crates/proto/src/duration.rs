//! Durations as people read them.

/// Milliseconds in at most two units: `41 ms`, `4.2 s`, `3 min 20 s`, `23 h 59 min`, `2 d 3 h`.
pub fn duration(millis: u64) -> String {
    let secs = millis / 1000;
    match secs {
        0 => format!("{millis} ms"),
        1..60 if millis % 1000 < 100 => format!("{secs} s"),
        1..60 => format!("{secs}.{} s", millis % 1000 / 100),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        3600..86_400 => format!("{} h {} min", secs / 3600, secs / 60 % 60),
        _ => format!("{} d {} h", secs / 86_400, secs / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (millis, expected) in [
            (0, "0 ms"),
            (41, "41 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (4_260, "4.2 s"),
            (30_000, "30 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min 0 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
            (86_398_500, "23 h 59 min"),
            (183_600_000, "2 d 3 h"),
        ] {
            assert_eq!(duration(millis), expected);
        }
    }
}
