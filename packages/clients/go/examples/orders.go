package examples

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"redlatch.dev/locks"
)

// CloseOrder writes under a lock into a database that refuses the write of a holder that was paused beyond its lease.
func CloseOrder(ctx context.Context, l *locks.Locks, database *sql.DB, order int) error {
	lock := l.Lock(fmt.Sprintf("lock:order:%d", order), locks.Options{Wait: 5 * time.Second})
	return lock.Do(ctx, func(ctx context.Context, held *locks.Held) error {
		transaction, err := database.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer transaction.Rollback()
		if err := held.Fenced(ctx, locks.SQLite(transaction), "orders"); err != nil {
			return err
		}
		if _, err := transaction.ExecContext(ctx, "UPDATE orders SET state = 'closed' WHERE id = ?", order); err != nil {
			return err
		}
		return transaction.Commit()
	})
}
