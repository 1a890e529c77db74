package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"redlatch.dev/locks"
)

// Several keys, and the ends of holds that are handed over: what the scenarios do not say.

func TestWhatNoServerGrantsOfSeveralKeysIsRefusedByName(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	keys := []string{"k", "l"}
	var many []string
	for number := range 1001 {
		many = append(many, fmt.Sprint(number))
	}
	for _, wrong := range []struct {
		names   string
		keys    []string
		options locks.Options
	}{
		{"keys", many, locks.Options{}},
		{"modes", keys, locks.Options{Modes: map[string]locks.Mode{"m": {}}}},
		{"permits", keys, locks.Options{Modes: map[string]locks.Mode{"k": {Of: 2}}}},
		{"shared, permits", keys, locks.Options{Modes: map[string]locks.Mode{"k": {Shared: true, Permits: 1, Of: 2}}}},
		{"shared, permits", keys[:1], locks.Options{Reentrant: true, Modes: map[string]locks.Mode{"k": {Shared: true}}}},
		{"Modes", keys, locks.Options{Shared: true}},
		{"priority", keys, locks.Options{Priority: 10}},
	} {
		for _, lock := range []*locks.Lock{l.All(wrong.keys, wrong.options), l.AnyOf(wrong.keys, wrong.options)} {
			_, err := lock.Acquire(context.Background())
			if !errors.Is(err, locks.ErrInvalid) || !strings.Contains(err.Error(), wrong.names) {
				t.Errorf("%s: %v", wrong.names, err)
			}
		}
	}
}

func TestOneOfSeveralThatACancelledAcquisitionWasGrantedIsGivenUp(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	do(t, namespace, "TEST.FAULT", "ADD", "COMMAND", "LOCK.MACQUIRE", "DO", "STALL", "60000")
	ctx, cancel := context.WithCancel(context.Background())
	taken := make(chan error)
	go func() {
		_, err := l.AnyOf([]string{"k", "l"}, locks.Options{}).Acquire(ctx)
		taken <- err
	}()
	await(t, func() bool { return do(t, namespace, "EXISTS", "k") == int64(1) })
	cancel()
	if err := <-taken; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	await(t, func() bool { return do(t, namespace, "EXISTS", "k") == int64(0) })
}

func TestWorkMayHandItsLockOver(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	var token int64
	handOver := func(ctx context.Context, held *locks.Held) (err error) {
		token, err = held.TransferTo(ctx, "node-2", time.Minute)
		return err
	}
	if err := l.Lock("k", locks.Options{}).Do(context.Background(), handOver); err != nil {
		t.Error(err)
	}
	if holder := holderOf(t, l, "k"); holder == nil || holder.Token != token || holder.Owner != "node-2" {
		t.Error(holder)
	}
}

func TestWorkThatEndsByAHandOverIsToldOfIt(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	err := l.Lock("k", locks.Options{}).Do(context.Background(), func(ctx context.Context, held *locks.Held) error {
		// As another goroutine would.
		if _, err := held.TransferTo(context.Background(), "node-2", time.Minute); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	var lost *locks.LostError
	if !errors.As(err, &lost) || lost.Reason != locks.Transferred {
		t.Error(err)
	}
}
