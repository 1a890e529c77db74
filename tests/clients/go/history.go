package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// history is what redsync asks and hears, in the lines of tests/locks/mutex/history.rs.
type history struct {
	book  *os.File
	calls int
}

// useInHistory has redsync, in Sentinel mode, take part in a check of mutual exclusion.
func useInHistory() {
	millis, err := strconv.Atoi(os.Getenv("REDLATCH_MUTEX_MILLIS"))
	must(err)
	book, err := os.OpenFile(os.Getenv("REDLATCH_MUTEX_HISTORY"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: strings.Split(os.Getenv("REDLATCH_MUTEX_SENTINELS"), ","),
		// A call that is sent twice would be two calls to the checker.
		MaxRetries: -1,
	})
	locks := redsync.New(goredis.NewPool(client))
	history := history{book: book}
	for end := time.Now().Add(time.Duration(millis) * time.Millisecond); time.Now().Before(end); {
		history.use(locks, []string{"lock:one", "lock:two", "lock:three"}[rand.IntN(3)])
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
}

func (h *history) use(locks *redsync.Redsync, lock string) {
	lease := 1 + rand.IntN(4000)
	token := fmt.Sprintf("go-%d-%d", os.Getpid(), h.calls)
	mutex := locks.NewMutex(lock, redsync.WithTries(1), redsync.WithTimeoutFactor(1),
		redsync.WithExpiry(time.Duration(lease)*time.Millisecond),
		redsync.WithGenValueFunc(func() (string, error) { return token, nil }))
	acquired := h.record(lock, "acquire", token, lease, func() (bool, error) {
		err := mutex.Lock()
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) {
			return false, nil
		}
		return err == nil, err
	})
	if !acquired {
		return
	}
	time.Sleep(time.Duration(rand.IntN(lease)) * time.Millisecond / 2)
	if rand.IntN(2) == 0 && !h.record(lock, "extend", token, lease, mutex.Extend) {
		return
	}
	h.record(lock, "release", token, 0, mutex.Unlock)
}

// record writes the call down before it leaves, and its answer when it is there.
func (h *history) record(lock, verb, token string, lease int, act func() (bool, error)) bool {
	words := token
	if lease > 0 {
		words = fmt.Sprintf("%s %d", token, lease)
	}
	name := h.sent(lock, verb, words)
	done, err := act()
	var taken *redsync.ErrTaken
	switch {
	case errors.As(err, &taken), errors.Is(err, redsync.ErrLockAlreadyExpired):
		done = false
	case err != nil && verb == "acquire":
		// redsync tries to release what it may have taken.
		h.sent(lock, "release", token)
		return false
	case err != nil:
		// Without an answer, or with one that came late.
		return false
	}
	answer := map[bool]string{true: "yes", false: "no"}[done]
	h.write("got %s %d %s\n", name, now(), answer)
	return done
}

// sent writes that a call is about to be sent, and returns its name.
func (h *history) sent(lock, verb, words string) string {
	h.calls++
	name := fmt.Sprintf("go-%d-%d", os.Getpid(), h.calls)
	h.write("sent %s %d %s %s %s\n", name, now(), lock, verb, words)
	return name
}

func (h *history) write(format string, words ...any) {
	_, err := fmt.Fprintf(h.book, format, words...)
	must(err)
}

// now is the machine's monotonic clock, which all processes share.
func now() int64 {
	var time unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &time))
	return time.Nano()
}
