//! The statement with which a database checks a fencing token: that of `redlatch fence sql`, run by the
//! caller's own client.

use std::fmt;

use super::error::Error;
use super::guard::Guard;

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

impl Fence {
    /// The statement that checks a token, with two parameters: the name that all writers use, and the token.
    pub const fn statement(self) -> &'static str {
        match self {
            Self::MySql => "CALL redlatch_fence(?, ?)",
            Self::Postgres => "SELECT redlatch_fence($1, $2)",
            Self::Sqlite => "INSERT OR REPLACE INTO redlatch_fence VALUES (?, ?)",
        }
    }
}

/// Why a database has not accepted a token.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError<E> {
    /// The statement has failed for another reason.
    Database(E),
    /// The lock has no token to check, or was taken by another process: nothing was sent.
    Lock(Error),
    /// The database has seen a higher token: somebody else has had the lock since. The transaction must be
    /// rolled back.
    Stale(E),
}

impl<E: fmt::Display> fmt::Display for FenceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) | Self::Stale(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for FenceError<E> {}

impl Guard {
    /// Has a database refuse a transaction that writes under the lock if a later holder has written: the
    /// first call in it. `name`: what all writers call the lock there. `execute` runs the statement with the
    /// name and the token as its parameters, in that transaction. A client that blocks does so in it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # struct Transaction;
    /// # impl Transaction { async fn execute(&mut self, _: &str, _: (&str, i64)) -> Result<(), String> { Ok(()) } }
    /// # let (server, mut transaction) = (redlatch::Server::builder().start().await?, Transaction);
    /// use redlatch::lock::Fence;
    ///
    /// let guard = server.locks().lock("lock:order:7").acquire().await?;
    /// let execute = async |statement, name, token| transaction.execute(statement, (name, token)).await;
    /// guard.fenced(Fence::Postgres, "orders", execute).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`FenceError::Stale`] if the database refuses the token; its other errors are left as they are.
    pub async fn fenced<'n, E: fmt::Debug + fmt::Display>(
        &self,
        database: Fence,
        name: &'n str,
        execute: impl AsyncFnOnce(&'static str, &'n str, i64) -> Result<(), E>,
    ) -> Result<(), FenceError<E>> {
        self.check_process().map_err(FenceError::Lock)?;
        let token = self.token().and_then(|token| i64::try_from(token).ok());
        let token = token.ok_or(FenceError::Lock(Error::Unsupported("a fencing token")))?;
        execute(database.statement(), name, token).await.map_err(|error| match is_stale(&error) {
            true => FenceError::Stale(error),
            false => FenceError::Database(error),
        })
    }
}

/// Whether the error is that of the fence: each database has its text.
fn is_stale(error: &(impl fmt::Debug + fmt::Display)) -> bool {
    // Some clients show the text of the database in the debug form alone.
    format!("{error} {error:?}").contains("stale fencing token")
}
