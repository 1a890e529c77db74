// Package gocronlocks has jobs of gocron run in one of several processes, under a lock of redlatch.
package gocronlocks

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"
	"redlatch.dev/locks"
)

// Locker is for [gocron.WithDistributedLocker] and [gocron.WithDistributedJobLocker]. A job runs under the lock of
// its name, behind the prefix; where another process has that, it does not run. The zero value of everything but
// Locks is a default.
type Locker struct {
	Locks *locks.Locks
	// Prefix is in front of the job's name in the key. Default: lock:
	Prefix string
	// AtLeast is for how long the lock stays held after it was taken, so that a process whose clock is behind does
	// not run the job once more. Default: as long as the job runs.
	AtLeast time.Duration
	// Options are those of each lock. The context of a job does not end when its lock is lost: check the fencing
	// token, or take the lock in the job by [locks.Lock.Do] where that matters.
	Options locks.Options
}

// Lock takes the lock of a job. Errors are those of [locks.Lock.Acquire].
func (locker *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	prefix := locker.Prefix
	if prefix == "" {
		prefix = "lock:"
	}
	held, err := locker.Locks.Lock(prefix+name, locker.Options).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &running{held, time.Now().Add(locker.AtLeast)}, nil
}

// running is the lock of a job that runs.
type running struct {
	held  *locks.Held
	until time.Time
}

// Unlock ends the lock of a job, or leaves it for the rest of its time, also if the scheduler has been shut down.
func (running *running) Unlock(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	rest := time.Until(running.until)
	if rest <= 0 || running.held.Err() != nil {
		_, err := running.held.Release(ctx)
		return err
	}
	return running.held.Leave(ctx, rest)
}
