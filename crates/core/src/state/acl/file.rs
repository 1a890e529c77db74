//! The ACL file: a line `user <name> <rules>` for each user.
//!
//! Owns    [`Store`], through which the file is read and written, and the conversion between its text and users.
//! Rule    a file is loaded as a whole or not at all. Every line with an error is reported.
//! Source  Redis 7.0 `acl.c`, `ACLLoadFromFile`.

use std::collections::BTreeSet;

use redlatch_proto::limits::ACL_USERS_MAX;

use super::{Acl, SetError, Terms, User, changed, check_name, rules};

/// Where the ACL file is stored. Implemented by the shell.
pub trait Store: Send + Sync {
    fn name(&self) -> &str;

    /// Reads the whole text.
    ///
    /// # Errors
    /// The message of the system.
    fn read(&self) -> Result<Vec<u8>, String>;

    /// Replaces the text as a whole or not at all.
    ///
    /// # Errors
    /// The message of the system.
    fn write(&self, text: &[u8]) -> Result<(), String>;
}

/// The most errors in one message.
const ERRORS_NAMED_MAX: usize = 16;

/// Parses the users of a file.
///
/// # Errors
/// One sentence for each line with an error, and one that nothing has changed.
pub fn parse(text: &[u8], name: &str, terms: Terms<'_>) -> Result<Vec<(Vec<u8>, User)>, Vec<u8>> {
    let mut users = Vec::new();
    let mut names = BTreeSet::new();
    let mut errors = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match user(line, name, index + 1, terms) {
            Ok((user, _)) if names.contains(&user) => {
                let text = format!(
                    "WARNING: Duplicate user '{}' found on line {}. ",
                    user.escape_ascii(),
                    index + 1
                );
                errors.push(text.into_bytes());
            }
            Ok((user, rights)) => {
                names.insert(user.clone());
                users.push((user, rights));
            }
            Err(error) => errors.push(error),
        }
    }
    if users.len() > ACL_USERS_MAX {
        errors.push(b"There are too many users. ".to_vec());
    }
    if errors.is_empty() {
        return Ok(users);
    }
    errors.truncate(ERRORS_NAMED_MAX);
    errors.push(
        b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed".to_vec(),
    );
    Err(errors.concat())
}

fn user(line: &[u8], file: &str, number: usize, terms: Terms<'_>) -> Result<(Vec<u8>, User), Vec<u8>> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let (keyword, name) = (words.next(), words.next());
    let (Some(b"user"), Some(name)) = (keyword, name) else {
        // Redis refuses them, too, and says so of no comment.
        let comment = if line.starts_with(b"#") { "; an ACL file has no comments" } else { "" };
        let text =
            format!("{file}:{number} should start with user keyword followed by the username{comment}. ");
        return Err(text.into_bytes());
    };
    let rights = one(name, words, terms).map_err(|error| match error {
        SetError::Parenthesis(_) => {
            format!("{file}:{number}: Unmatched parenthesis in selector definition. ").into_bytes()
        }
        SetError::Rule(_, error @ rules::RuleError::Syntax) => {
            format!("{file}:{number}: {error}. ").into_bytes()
        }
        SetError::Rule(rule, error) => {
            let rule = rule.escape_ascii();
            format!("{file}:{number}: Error in applying operation '{rule}': {error}. ").into_bytes()
        }
        SetError::Name | SetError::Users => format!("{file}:{number}: {}. ", BAD_NAME).into_bytes(),
    })?;
    Ok((name.to_vec(), rights))
}

const BAD_NAME: &str = "Usernames can't contain spaces or null characters";

/// The user with a name and rules, of those given at the start of a server.
///
/// # Errors
/// As [`Acl::set`].
pub fn one<'a>(
    name: &[u8],
    words: impl Iterator<Item = &'a [u8]>,
    terms: Terms<'_>,
) -> Result<User, SetError> {
    check_name(name)?;
    let rules = rules::merged(words).map_err(SetError::Parenthesis)?;
    changed(User::new(terms), &rules, terms)
}

/// The lines of all users, each beginning with `user`.
pub fn lines(acl: &Acl) -> Vec<Vec<u8>> {
    let line = |account: std::sync::Arc<super::Account>| {
        [b"user ", &account.name()[..], b" ", &account.user().describe()].concat()
    };
    acl.all().into_iter().map(line).collect()
}

/// The text of a file with all users.
pub fn text(acl: &Acl) -> Vec<u8> {
    lines(acl).into_iter().flat_map(|line| [line, b"\n".to_vec()].concat()).collect()
}
