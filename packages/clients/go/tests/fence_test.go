package tests

import (
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
	"redlatch.dev/locks"
)

// Fencing tokens in databases: Held.Fenced.

func fenceOf(t testing.TB, kind string) string {
	t.Helper()
	printed, err := exec.Command(redlatchProgram(t), "fence", "sql", kind).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(printed)
}

func sqliteWithFence(t testing.TB, tables string) *sql.DB {
	t.Helper()
	database, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Close() })
	execute(t, database, fenceOf(t, "sqlite")+tables)
	return database
}

// twoHolds are an older hold, which the newer one's holder has outlived.
func twoHolds(t testing.TB, l *locks.Locks) (*locks.Held, *locks.Held) {
	t.Helper()
	older := take(t, l, "stock", locks.Options{})
	if _, err := older.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	return older, take(t, l, "stock", locks.Options{})
}

// refuses checks that the older holder is refused, and writes nothing. `write` writes in a transaction.
func refuses(t *testing.T, write func(held *locks.Held) error) {
	t.Helper()
	l := newLocks(t, server.Namespace(t))
	older, newer := twoHolds(t, l)
	for range 2 {
		if err := write(newer); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(older); !errors.Is(err, locks.ErrStaleToken) {
		t.Fatal(err)
	}
}

// writeBy writes by database/sql, in a transaction of which `of` makes what checks the token.
func writeBy(database *sql.DB, of func(locks.Execer) locks.Transaction) func(*locks.Held) error {
	return func(held *locks.Held) error {
		ctx := context.Background()
		transaction, err := database.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer transaction.Rollback()
		if err := held.Fenced(ctx, of(transaction), ""); err != nil {
			return err
		}
		if _, err := transaction.ExecContext(ctx, "UPDATE stock SET count = count + 1"); err != nil {
			return err
		}
		return transaction.Commit()
	}
}

func countIs(t testing.TB, database *sql.DB, wanted int) {
	t.Helper()
	found := 0
	if err := database.QueryRow("SELECT count FROM stock").Scan(&found); err != nil || found != wanted {
		t.Fatal(found, err)
	}
}

func TestSQLiteRefusesTheOlderHolder(t *testing.T) {
	database := sqliteWithFence(t, "CREATE TABLE stock (count); INSERT INTO stock VALUES (0);")
	refuses(t, writeBy(database, locks.SQLite))
	countIs(t, database, 2)
}

func TestSQLOutsideOfATransactionIsNotFenced(t *testing.T) {
	fenced := reflect.TypeFor[locks.Execer]()
	for kind, is := range map[reflect.Type]bool{
		reflect.TypeFor[*sql.Tx](): true, reflect.TypeFor[*sql.Conn](): false, reflect.TypeFor[*sql.DB](): false,
	} {
		if kind.Implements(fenced) != is {
			t.Errorf("%v: it compiles: %v", kind, !is)
		}
	}
	fenced = reflect.TypeFor[locks.PgxExecer[pgconn.CommandTag]]()
	if !reflect.TypeFor[pgx.Tx]().Implements(fenced) || reflect.TypeFor[*pgx.Conn]().Implements(fenced) {
		t.Error("pgx")
	}
}

// begun is a transaction that is rolled back.
func begun(t *testing.T, database *sql.DB) *sql.Tx {
	t.Helper()
	transaction, err := database.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transaction.Rollback() })
	return transaction
}

func TestOtherErrorsAreLeftAsTheyAre(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "stock", locks.Options{})
	database, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "empty.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Close() })
	err = held.Fenced(context.Background(), locks.SQLite(begun(t, database)), "")
	if err == nil || errors.Is(err, locks.ErrStaleToken) {
		t.Fatal(err)
	}
}

func TestAServerWithoutTokensFencesNothing(t *testing.T) {
	process := startRedis(t)
	l := newLocksOn(t, process)
	held := take(t, l, "stock", locks.Options{})
	database := sqliteWithFence(t, "")
	if err := held.Fenced(context.Background(), locks.SQLite(begun(t, database)), ""); !errors.Is(err, locks.ErrNotSupported) {
		t.Fatal(err)
	}
}

func TestPostgres(t *testing.T) {
	folder := startPostgres(t)
	where := "host=" + folder + " user=postgres dbname=postgres"
	database, err := sql.Open("pgx", where)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	execute(t, database, fenceOf(t, "postgres"))
	execute(t, database, "CREATE TABLE stock (count bigint NOT NULL)")
	execute(t, database, "INSERT INTO stock VALUES (0)")
	t.Run("database/sql", func(t *testing.T) { refuses(t, writeBy(database, locks.Postgres)) })
	execute(t, database, "DELETE FROM redlatch_fence")
	t.Run("pgx", func(t *testing.T) {
		ctx := context.Background()
		connection, err := pgx.Connect(ctx, where)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close(ctx)
		refuses(t, func(held *locks.Held) error {
			return pgx.BeginFunc(ctx, connection, func(transaction pgx.Tx) error {
				if err := held.Fenced(ctx, locks.Pgx(transaction), ""); err != nil {
					return err
				}
				_, err := transaction.Exec(ctx, "UPDATE stock SET count = count + 1")
				return err
			})
		})
	})
	countIs(t, database, 4)
}

func TestMariaDB(t *testing.T) {
	socket := startMariaDB(t, fenceOf(t, "mysql")+"\n"+
		"CREATE TABLE stock (count BIGINT NOT NULL) ENGINE = InnoDB; INSERT INTO stock VALUES (0);")
	database, err := sql.Open("mysql", "writer@unix("+socket+")/shop")
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	refuses(t, writeBy(database, locks.MySQL))
	countIs(t, database, 2)
}
