//! Errors of rules, and how the words of a request are joined to rules.
//!
//! Source  texts of Redis 7.0 `acl.c`, `ACLSetUserStringError` and `ACLMergeSelectorArguments`.

/// Why a rule was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// The word is no rule.
    #[error("Syntax error")]
    Syntax,
    /// There is no such command, subcommand or category.
    #[error("Unknown command or category name in ACL")]
    UnknownCommand,
    /// `+config|get|x`.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstOfSubcommand,
    /// A pattern of keys where all keys are allowed.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    /// A pattern of channels where all channels are allowed.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
         Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// `<` or `!` of a password that the user does not have.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// `#` or `!` without a digest.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    NoDigest,
    /// `lock-priority-max=` with anything but one digit.
    #[error("The priority must be a whole number from 0 to 9")]
    Priority,
    /// More than a user may have.
    #[error("The user would have too many rules")]
    TooMany,
}

/// Joins words to rules: words within parentheses are one rule.
///
/// # Errors
/// The rule that opens a parenthesis and does not close it.
pub(crate) fn merged<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut rules: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    let mut opened_with: &[u8] = b"";
    for word in words {
        let rule = match open.take() {
            Some(mut rule) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                rule
            }
            None => {
                opened_with = word;
                word.to_vec()
            }
        };
        if rule.first() == Some(&b'(') && word.last() != Some(&b')') {
            open = Some(rule);
        } else {
            rules.push(rule);
        }
    }
    match open {
        Some(_) => Err(opened_with.to_vec()),
        None => Ok(rules),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let string = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        merged(text.split(' ').map(str::as_bytes))
            .map(|rules| rules.into_iter().map(string).collect())
            .map_err(string)
    }

    #[test]
    fn parentheses_hold_words_together() {
        assert_eq!(read("on (+get ~a ) >p () x)").unwrap(), ["on", "(+get ~a )", ">p", "()", "x)"]);
    }

    #[test]
    fn an_open_parenthesis_is_named_by_its_first_word() {
        assert_eq!(read("on (+get ~a").unwrap_err(), "(+get");
        assert_eq!(read("(").unwrap_err(), "(");
    }
}
