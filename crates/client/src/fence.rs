//! The statement with which a database checks a fencing token: that of `redlatch fence sql`, run by the
//! caller's own client.

use std::fmt;

use super::error::Error;
use super::guard::{Guard, NO_LOCK};

/// A kind of database that checks fencing tokens, by what `redlatch fence sql` prints for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fence {
    /// MySQL and MariaDB.
    MySql,
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// What a transaction that writes under a lock begins with, as [`Guard::fenced`] makes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "the statement is to be run, and its answer checked"]
#[non_exhaustive]
pub struct Fenced {
    /// The statement. It has two parameters: what all writers call the lock, and the token.
    pub statement: &'static str,
    /// The token of the lock.
    pub token: i64,
}

/// Why a database has not accepted a token.
#[derive(Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FenceError<E> {
    /// The statement has failed for another reason.
    Database(E),
    /// The database has seen a higher token: somebody else has had the lock since. The transaction must be
    /// rolled back.
    Stale(E),
}

impl<E: fmt::Display> fmt::Display for FenceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) | Self::Stale(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for FenceError<E> {}

impl Guard {
    /// What a transaction that writes under the lock begins with: the database refuses it if a later holder
    /// has written. Outside of a transaction, where each statement commits by itself, it protects nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # struct Transaction;
    /// # impl Transaction { fn execute(&mut self, _: &str, _: (&str, i64)) -> Result<(), String> { Ok(()) } }
    /// # let (server, mut transaction) = (redlatch::Server::builder().start().await?, Transaction);
    /// use redlatch::lock::Fence;
    ///
    /// let guard = server.locks().lock("lock:order:7").acquire().await?;
    /// let fenced = guard.fenced(Fence::Postgres)?;
    /// fenced.check(transaction.execute(fenced.statement, ("orders", fenced.token)))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the lock has no token, [`Error::Unreachable`] if there is no lock because no server has
    /// answered, [`Error::Lost`] if another process has taken it.
    pub fn fenced(&self, database: Fence) -> Result<Fenced, Error> {
        self.check_process()?;
        if self.is_open() {
            return Err(Error::unreachable(NO_LOCK));
        }
        let token = self.token().and_then(|token| i64::try_from(token).ok());
        let statement = match database {
            Fence::MySql => "CALL redlatch_fence(?, ?)",
            Fence::Postgres => "SELECT redlatch_fence($1, $2)",
            Fence::Sqlite => "INSERT OR REPLACE INTO redlatch_fence VALUES (?, ?)",
        };
        Ok(Fenced { statement, token: token.ok_or(Error::Unsupported("a fencing token"))? })
    }
}

impl Fenced {
    /// What the database has answered to the statement.
    ///
    /// # Errors
    /// [`FenceError::Stale`] if the database has refused the token. Its other errors are left as they are.
    pub fn check<T, E: fmt::Debug + fmt::Display>(&self, answer: Result<T, E>) -> Result<T, FenceError<E>> {
        answer.map_err(|error| {
            // Some clients show the text of the database in the debug form alone.
            match format!("{error} {error:?}").contains("stale fencing token") {
                true => FenceError::Stale(error),
                false => FenceError::Database(error),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_knows_a_higher_token_is_told_from_one_that_has_failed() {
        let fenced = Fenced { statement: "", token: 41 };
        assert_eq!(fenced.check(Ok::<_, &str>(1)), Ok(1));
        let stale = "stale fencing token 41 of lock orders: 42 is known";
        assert_eq!(fenced.check(Err::<(), _>(stale)), Err(FenceError::Stale(stale)));
        assert_eq!(fenced.check(Err::<(), _>("no such table")), Err(FenceError::Database("no such table")));
    }
}
