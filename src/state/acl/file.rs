//! The ACL file: a line `user <name> <rules>` for each user.
//!
//! Owns    [`Store`], the way to the file, and the way from its text to users and back.
//! Rule    a file is taken as a whole or not at all; every line that is wrong is named.
//! Source  Redis 7.0 `acl.c`, `ACLLoadFromFile`.

use std::collections::BTreeSet;

use super::{Acl, SetError, Terms, User, changed, check_name, rules};
use crate::limits::ACL_USERS_MAX;

/// Where the users are kept between runs of the server.
pub trait Store: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> &str;

    /// The whole text.
    ///
    /// # Errors
    /// What the system said.
    fn read(&self) -> Result<Vec<u8>, String>;

    /// Puts this text in its place, as a whole or not at all.
    ///
    /// # Errors
    /// What the system said.
    fn write(&self, text: &[u8]) -> Result<(), String>;
}

/// Errors that are named; the others are counted.
const ERRORS_NAMED_MAX: usize = 16;

/// The users of a file.
///
/// # Errors
/// One sentence for each line that is wrong, and one that nothing has changed.
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
        let text = format!("{file}:{number} should start with user keyword followed by the username. ");
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

/// The user that a name and rules make, of those that the start of a server brings.
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

/// The lines of all users, each behind the word `user`.
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
