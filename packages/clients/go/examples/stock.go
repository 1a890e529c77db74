// Package examples has the examples of the documentation.
package examples

import (
	"context"
	"errors"
	"fmt"
	"time"

	"redlatch.dev/locks"
)

// Restock takes a lock, works while it is held, and says who has it if it is not granted.
func Restock(ctx context.Context, l *locks.Locks, articles []string, write func(article string, token int64) error) error {
	held, err := l.Lock("lock:stock", locks.Options{
		Wait: 5 * time.Second,
		Meta: map[string]string{"reason": "delivery 4711"},
	}).Acquire(ctx)
	if errors.Is(err, locks.ErrHeld) {
		fmt.Println(err) // who has it, why, since when, and how to break it
	}
	if err != nil {
		return err
	}
	defer held.Release(ctx)
	for _, article := range articles {
		if err := held.Err(); err != nil {
			return err // it is lost
		}
		if err := write(article, held.Token()); err != nil {
			return err
		}
	}
	return held.Err()
}
