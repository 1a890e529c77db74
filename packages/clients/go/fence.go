package locks

import (
	"context"
	"database/sql"
	"strings"
)

// Transaction is a transaction of a database that can check a fencing token. Make it by [SQLite], [MySQL], [Postgres]
// or [Pgx].
type Transaction struct {
	check func(ctx context.Context, name string, token int64) error
}

// Execer is a transaction of database/sql: a [*sql.Tx]. A [*sql.DB] and a [*sql.Conn] are none: outside of a transaction
// each statement commits by itself, and a fence protects nothing.
type Execer interface {
	Commit() error
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// PgxExecer is a transaction of pgx: a pgx.Tx.
type PgxExecer[T any] interface {
	Commit(ctx context.Context) error
	Exec(ctx context.Context, query string, args ...any) (T, error)
}

// SQLite is a transaction of SQLite, by any driver of database/sql.
func SQLite(transaction Execer) Transaction {
	return statement(transaction, "INSERT OR REPLACE INTO redlatch_fence VALUES (?, ?)")
}

// MySQL is a transaction of MySQL or MariaDB, by any driver of database/sql.
func MySQL(transaction Execer) Transaction {
	return statement(transaction, "CALL redlatch_fence(?, ?)")
}

// Postgres is a transaction of PostgreSQL, by any driver of database/sql.
func Postgres(transaction Execer) Transaction {
	return statement(transaction, postgresStatement)
}

// Pgx is a transaction of PostgreSQL, by pgx without database/sql.
func Pgx[T any](transaction PgxExecer[T]) Transaction {
	return Transaction{func(ctx context.Context, name string, token int64) error {
		_, err := transaction.Exec(ctx, postgresStatement, name, token)
		return err
	}}
}

func statement(transaction Execer, text string) Transaction {
	return Transaction{func(ctx context.Context, name string, token int64) error {
		_, err := transaction.ExecContext(ctx, text, name, token)
		return err
	}}
}

// Fenced is the first call in a transaction that writes under the lock: it has the database refuse that if a later
// holder has written. The database has what `redlatch fence sql` prints. The name is that of the lock there; empty
// for the key.
//
// An open hold writes nothing: it fails with [ErrUnreachable], and the database is not asked.
//
// Other errors are [ErrStaleToken], which has the database's error, too: roll the transaction back; [ErrNotSupported]
// without a token; and other errors of the database as they are.
func (held *Held) Fenced(ctx context.Context, transaction Transaction, name string) error {
	if held.isOpen {
		return &failure{"an open hold is no lock: " + ErrUnreachable.Error(), []error{ErrUnreachable}}
	}
	if held.token == 0 {
		return notSupported("a fencing token")
	}
	if name == "" {
		name = held.Key()
	}
	err := transaction.check(ctx, name, held.token)
	if err != nil && strings.Contains(err.Error(), "stale fencing token") {
		return &failure{err.Error(), []error{ErrStaleToken, err}}
	}
	return err
}

const postgresStatement = "SELECT redlatch_fence($1, $2)"
