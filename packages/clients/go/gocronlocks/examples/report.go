// Package examples has the example of the documentation.
package examples

import (
	"time"

	"github.com/go-co-op/gocron/v2"
	"redlatch.dev/locks"
	"redlatch.dev/locks/gocronlocks"
)

// Schedule has a job run once a minute, in one of several processes. Nobody starts it again in this minute, not even
// with a clock that is behind.
func Schedule(l *locks.Locks, report func()) (gocron.Scheduler, error) {
	locker := &gocronlocks.Locker{Locks: l, AtLeast: 50 * time.Second}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(report), gocron.WithName("report"))
	return scheduler, err
}
