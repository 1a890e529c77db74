//! The words of a request without passwords: for the slow log, MONITOR and histories.

use redlatch_proto::resp::Request;

use super::row::Flags;
use super::table::Command;

/// Settings whose values are passwords or user names, including settings of Redis that are refused here.
const SECRETS: &[&[u8]] = &[
    b"cluster-etcd-password", b"requirepass", b"http-token", b"masterauth", b"masteruser",
    b"tls-key-file-pass", b"tls-client-key-file-pass",
];
/// What stands for a word that is left out.
const REDACTED: &[u8] = b"(redacted)";

/// The words of a call, with passwords, and the user names they belong to, redacted.
pub fn redacted<'a>(command: &Command, request: Request<'a>) -> Vec<&'a [u8]> {
    let mut words: Vec<_> = request.words().collect();
    match command.name.as_str() {
        "acl|setuser" | "acl|deluser" | "acl|getuser" => {
            words.iter_mut().skip(2).for_each(|word| *word = REDACTED);
        }
        "config|set" => {
            for pair in words.chunks_exact_mut(2).skip(1) {
                if SECRETS.iter().any(|name| pair[0].eq_ignore_ascii_case(name)) {
                    pair[1] = REDACTED;
                }
            }
        }
        _ if command.row.flags.has(Flags::SECRET) => {
            let secrets = secrets(command, request);
            let (start, end) = (secrets.start.min(words.len()), secrets.end.min(words.len()));
            words[start..end].fill(REDACTED);
        }
        _ => {}
    }
    words
}

/// The places of words that are passwords or name the user they belong to, of AUTH and HELLO.
fn secrets(command: &Command, request: Request<'_>) -> std::ops::Range<usize> {
    if command.name == "auth" {
        return 1..request.len();
    }
    // The options of HELLO, in order: a name that SETNAME gives may be `AUTH`.
    let mut at = 1;
    while let Some(option) = request.get(at) {
        if option.eq_ignore_ascii_case(b"AUTH") {
            return at.saturating_add(1)..at.saturating_add(3);
        }
        let words = if option.eq_ignore_ascii_case(b"SETNAME") { 2 } else { 1 };
        at = at.saturating_add(words);
    }
    0..0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    #[test]
    fn no_password_is_kept() {
        for words in [
            &["AUTH", "secret"][..],
            &["auth", "someone", "secret"],
            &["HELLO", "3", "auth", "someone", "secret", "SETNAME", "x"],
            &["HELLO", "3", "SETNAME", "AUTH", "AUTH", "someone", "secret"],
            &["CONFIG", "SET", "maxclients", "7", "RequirePass", "secret"],
            &["ACL", "SETUSER", "someone", ">secret"],
            &["AUTH", "a", "b", "secret"],
            &["HELLO", "3", "AUTH", "secret"],
        ] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let request = Request::listed(&words);
            let kept = redacted(table().of_request(request).unwrap(), request);
            assert!(!kept.contains(&&b"secret"[..]), "{words:?}");
            assert!(kept.contains(&REDACTED), "{words:?}");
        }
    }
}
