package examples

import (
	"context"
	"errors"

	"redlatch.dev/locks"
)

// Lead leads until it is told to stop, and then hands the lock over to its successor, as in a rolling deploy.
func Lead(
	ctx context.Context, l *locks.Locks, name, successor string, stopping <-chan struct{}, step func(held *locks.Held) error,
) error {
	leading := l.Lock("lock:leader", locks.Options{Owner: name, Wait: locks.Forever})
	return leading.Do(ctx, func(ctx context.Context, held *locks.Held) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-stopping:
				_, err := held.TransferTo(ctx, successor, 0)
				if errors.Is(err, locks.ErrRefused) {
					return nil // the successor does not wait: the end of Do releases the lock
				}
				return err
			default:
				if err := step(held); err != nil {
					return err
				}
			}
		}
	})
}
