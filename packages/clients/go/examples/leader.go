package examples

import (
	"context"
	"errors"
	"fmt"
	"time"

	"redlatch.dev/locks"
)

// LeadForever has one process of several lead, as long as its connection lasts. The context of its work is done when
// it leads no more.
func LeadForever(ctx context.Context, l *locks.Locks, work func(ctx context.Context, held *locks.Held) error) error {
	leading := l.Lock("lock:leader", locks.Options{Session: true, Delay: 2 * time.Second, Wait: locks.Forever})
	for {
		err := leading.Do(ctx, work)
		if !errors.Is(err, locks.ErrLost) {
			return err
		}
		fmt.Println(err)
	}
}
