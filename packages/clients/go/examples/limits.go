package examples

import (
	"context"
	"time"

	"redlatch.dev/locks"
)

// RunFor runs a job that counts for two limits: two jobs of a tenant at a time, and a hundred of all.
func RunFor(ctx context.Context, l *locks.Locks, tenant string, job func(ctx context.Context) error) error {
	limits := map[string]locks.Mode{tenant: {Permits: 1, Of: 2}, "total": {Permits: 1, Of: 100}}
	both := l.All([]string{tenant, "total"}, locks.Options{Modes: limits, Wait: time.Minute})
	return both.Do(ctx, func(ctx context.Context, _ *locks.Held) error { return job(ctx) })
}
