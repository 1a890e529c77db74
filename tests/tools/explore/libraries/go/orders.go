package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	leaseMs = 30_000
	release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
	extend  = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
)

var errLost = errors.New("the lock was lost")

// A service that ships orders, each under a lock. Without a bug it is right.
type service struct {
	client *redis.Client
	bug    string
}

// shipOrders ships two.
func shipOrders(options *redis.Options, bug string) error {
	// A request whose connection ends fails, and is not sent again.
	options.MaxRetries = -1
	orders := service{redis.NewClient(options), bug}
	for _, order := range []string{"1", "2"} {
		if err := orders.ship(context.Background(), "lock:order:"+order, "process-"+order); err != nil {
			return err
		}
	}
	return nil
}

func (s service) take(ctx context.Context, key, owner string) error {
	granted, err := s.client.SetNX(ctx, key, owner, leaseMs*time.Millisecond).Result()
	switch {
	case err != nil && s.bug != "forgets":
		// It may have been granted.
		return errors.Join(err, s.giveBack(ctx, key, owner))
	case err == nil && !granted:
		return errors.New("somebody else ships it")
	}
	return err
}

// giveBack asks until a server answers: it may be about to restart.
func (s service) giveBack(ctx context.Context, key, owner string) error {
	for range 1000 {
		if s.client.Eval(ctx, release, []string{key}, owner).Err() == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("the server stays away")
}

func (s service) release(ctx context.Context, key, owner string) (int64, error) {
	switch s.bug {
	case "deletes":
		return s.client.Del(ctx, key).Result()
	case "looks":
		holder, err := s.client.Get(ctx, key).Result()
		if err == redis.Nil || err == nil && holder != owner {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		return s.client.Del(ctx, key).Result()
	}
	return s.client.Eval(ctx, release, []string{key}, owner).Int64()
}

// work is done while the lock is held. At its end the lease begins anew.
func (s service) work(ctx context.Context, key, owner string) error {
	begun, err := s.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	if err := s.client.Incr(ctx, "shipped").Err(); err != nil {
		return err
	}
	extended, err := s.client.Eval(ctx, extend, []string{key}, owner, fmt.Sprint(leaseMs)).Int64()
	if err != nil {
		return err
	}
	if s.bug == "wall-clock" {
		if now, err := s.client.Time(ctx).Result(); err != nil || now.Sub(begun) > leaseMs*time.Millisecond {
			return errors.Join(errLost, err)
		}
	}
	if extended == 0 && s.looks() {
		return errLost
	}
	return nil
}

// looks tells whether it reads what the server says of its lock.
func (s service) looks() bool {
	return s.bug != "ignores"
}

func (s service) ship(ctx context.Context, key, owner string) error {
	if err := s.take(ctx, key, owner); err != nil {
		return err
	}
	if err := s.work(ctx, key, owner); err != nil {
		return errors.Join(err, s.giveBack(ctx, key, owner))
	}
	released, err := s.release(ctx, key, owner)
	if err == nil && released == 0 && s.looks() {
		return errLost
	}
	return err
}
