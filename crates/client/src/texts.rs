//! Who holds a lock, in words for people: as a refusal says it, and as the program `redlatch` shows it.

use std::fmt::Write as _;

use redlatch_proto::duration::duration;
use redlatch_proto::log_name::readable;

use super::views::{Client, Held, Holder};

/// A lock as lines: key, holder, where, since, lease, token, queue.
pub fn lines(held: &Held) -> String {
    let mut text = format!("  key:    {}\n", readable(&held.key));
    let limit = held.limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
    for holder in &held.holders {
        let permits = match held.kind.as_str() {
            "permits" => format!(", {}{limit} permits", holder.permits),
            "reentrant" => format!(", {} times", holder.permits),
            "shared" => ", shared".to_owned(),
            _ => String::new(),
        };
        let _ = writeln!(text, "  holder: {}{permits}", owner(held, holder));
        if held.value_type.as_ref().is_some_and(|value_type| value_type == "string") {
            let _ = writeln!(text, "  value:  {}", readable(&holder.owner));
        }
        for (field, value) in &holder.meta {
            let [field, value] = [field, value].map(|text| readable(text));
            let _ = writeln!(text, "  {field}: {value}");
        }
        match &holder.client {
            Some(client) => _ = writeln!(text, "  where:  {}", place(client)),
            None if is_gone(holder) => text.push_str("  where:  its connection is gone\n"),
            None => {}
        }
        if let Some(since) = holder.since_unix_ms {
            let age = holder.held_ms.map(|held| format!(", for {}", duration(held))).unwrap_or_default();
            let _ = writeln!(text, "  since:  {}{age}", utc(since));
        }
        let _ = writeln!(text, "  lease:  {}{}", lease(holder), until(holder));
        if let Some(token) = holder.token {
            let _ = writeln!(text, "  token:  {token}");
        }
    }
    let _ = writeln!(text, "  queue:  {} waiting", held.waiters);
    text
}

/// The command that would break the lock, if its token is known.
pub fn breaking(held: &Held) -> Option<String> {
    let token = held.holders.first()?.token?;
    Some(format!("redlatch break {} --token {token}", quoted(&readable(&held.key))))
}

/// Who holds a lock, or a key that is none.
pub fn owner(held: &Held, holder: &Holder) -> String {
    let inferred = if holder.is_inferred { " (inferred)" } else { "" };
    held.unknown_owner().unwrap_or_else(|| readable(&holder.owner)) + inferred
}

/// Where a client connects from, with what it says of itself.
pub fn place(client: &Client) -> String {
    let library = [&client.lib_name, &client.lib_ver].map(String::as_str).join(" ");
    let known = [client.name.as_str(), library.trim()];
    let known: Vec<&str> = known.into_iter().filter(|text| !text.is_empty()).collect();
    let place = match known.is_empty() {
        true => client.addr.clone(),
        false => format!("{} ({})", client.addr, known.join(", ")),
    };
    readable(place.as_bytes())
}

/// Whether the server says that the connection of a holder is gone. A refusal and a plain Redis say nothing of it.
pub fn is_gone(holder: &Holder) -> bool {
    holder.client.is_none() && holder.since_unix_ms.is_some()
}

/// What is left of a lease.
pub fn lease(holder: &Holder) -> String {
    let renewed = match holder.renewals {
        0 => String::new(),
        1 => ", renewed once".to_owned(),
        times => format!(", renewed {times} times"),
    };
    match (holder.left_ms, holder.session) {
        (Some(left), _) => format!("{} left{renewed}", duration(left)),
        (None, true) => "until its connection ends".to_owned(),
        (None, false) => "no lease: it ends when it is released".to_owned(),
    }
}

/// When the lease ends, by the clock of the server.
fn until(holder: &Holder) -> String {
    let parts =
        [holder.since_unix_ms, holder.held_ms, holder.left_ms].into_iter().collect::<Option<Vec<u64>>>();
    let end = parts.map(|parts| parts.into_iter().fold(0, u64::saturating_add));
    end.map(|end| format!(", until {}", utc(end))).unwrap_or_default()
}

/// A moment as `2023-11-14 22:13:20 UTC`.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end; 719_468 days before 1970 such a year was
    // divisible by 400.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_of_the_calendar() {
        for (unix_ms, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix_ms), expected);
        }
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_split_it() {
        for (word, expected) in
            [("lock:a", "lock:a"), ("two words", "'two words'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(word), expected);
        }
    }
}
