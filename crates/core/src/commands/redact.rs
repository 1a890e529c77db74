//! The words of a request without passwords: for the slow log, MONITOR and the history of the test backend.

use redlatch_proto::resp::Request;

use super::row::Flags;
use super::table::{Command, table};

/// Settings whose values are passwords or user names, including settings of Redis that are refused here.
const SECRETS: &[&[u8]] = &[
    b"cluster-etcd-password", b"requirepass", b"http-token", b"masterauth", b"masteruser",
    b"tls-key-file-pass", b"tls-client-key-file-pass",
];
/// What stands for a word that is left out.
const REDACTED: &[u8] = b"(redacted)";

/// A request as a history keeps it.
#[derive(Debug)]
pub(super) struct PublicRequest<'a> {
    /// The name of the command in upper case; of a subcommand, both words.
    pub(super) command: String,
    /// The words behind the name, without passwords.
    pub(super) args: Vec<&'a [u8]>,
    pub(super) keys: Vec<&'a [u8]>,
}

/// The request without passwords. `None` if it is empty.
pub(super) fn public_request(request: Request<'_>) -> Option<PublicRequest<'_>> {
    let name = request.get(0)?;
    let Some(command) = table().of_request(request) else {
        let args = request.words().skip(1).collect();
        let command = String::from_utf8_lossy(name).to_ascii_uppercase();
        return Some(PublicRequest { command, args, keys: Vec::new() });
    };
    let mut args = redacted(command, request);
    args.drain(..command.name_words);
    let keys = command.positions(request).filter_map(|at| request.get(at)).collect();
    let command = command.name.to_ascii_uppercase().replace('|', " ");
    Some(PublicRequest { command, args, keys })
}

/// The words of a call, with passwords, and the user names they belong to, redacted.
pub(super) fn redacted<'a>(command: &Command, request: Request<'a>) -> Vec<&'a [u8]> {
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
            let public = public_request(Request::listed(&words)).unwrap();
            assert!(!public.args.contains(&&b"secret"[..]), "{public:?}");
            assert!(public.args.contains(&REDACTED), "{public:?}");
        }
    }

    #[test]
    fn a_request_is_named_by_its_command_with_its_keys() {
        let words: [&[u8]; 4] = [b"del", b"a", b"b", b"c"];
        let public = public_request(Request::listed(&words)).unwrap();
        assert_eq!((public.command.as_str(), public.keys.len(), public.args.len()), ("DEL", 3, 3));
        let words: [&[u8]; 3] = [b"client", b"setname", b"x"];
        let public = public_request(Request::listed(&words)).unwrap();
        assert_eq!((public.command.as_str(), public.args), ("CLIENT SETNAME", vec![&b"x"[..]]));
        let words: [&[u8]; 2] = [b"nonsense", b"x"];
        assert_eq!(public_request(Request::listed(&words)).unwrap().command, "NONSENSE");
        assert!(public_request(Request::listed(&[])).is_none());
    }
}
