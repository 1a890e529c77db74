package examples

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

var ctx = context.Background()

// connect is a client of a node, numbered from 1. It sends nothing twice.
func connect(t *testing.T, redlatch *redlatchtest.Namespace, node int) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(redlatch.URLs()[node-1])
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func equal[T comparable](t *testing.T, seen, wanted T) {
	t.Helper()
	if seen != wanted {
		t.Fatalf("%v instead of %v", seen, wanted)
	}
}

func TestClock(t *testing.T) {
	redlatch := server.Namespace(t)
	client, clock := connect(t, redlatch, 1), redlatch.Clock()
	frozen := clock.Freeze()
	client.Set(ctx, "key", "value", 5*time.Second)
	equal(t, clock.Advance(400*time.Millisecond), frozen.Add(400*time.Millisecond))
	equal(t, client.PTTL(ctx, "key").Val(), 4600*time.Millisecond)
	equal(t, clock.Set(frozen.Add(time.Second)), frozen.Add(time.Second))
	equal(t, clock.Now(), frozen.Add(time.Second))
	equal(t, clock.StepWall(time.Hour), frozen.Add(time.Hour+time.Second))
	equal(t, client.PTTL(ctx, "key").Val(), 4*time.Second)
	state := clock.Show()
	equal(t, state.Mode, "frozen")
	equal(t, state.Deadlines[0].Key, "key")
	_, isAny := clock.Next()
	equal(t, isAny, true)
	equal(t, client.Exists(ctx, "key").Val(), 0)
	_, isAny = clock.Next()
	equal(t, isAny, false)
	clock.Run()
	equal(t, clock.Show().Mode, "running")
}

func TestAutoGoesToTheNextDeadlineWhileAllClientsWait(t *testing.T) {
	redlatch := server.Namespace(t)
	client := connect(t, redlatch, 1)
	redlatch.Clock().Auto(5 * time.Millisecond)
	equal(t, errors.Is(client.BLPop(ctx, time.Hour, "queue").Err(), redis.Nil), true)
	equal(t, redlatch.Clock().Show().Mode, "auto")
}

func TestNamespacesDoNotMeet(t *testing.T) {
	here, there := server.Namespace(t), server.NamedNamespace(t, "go/tests:there")
	here.Clock().Freeze()
	connect(t, here, 1).Set(ctx, "key", "value", 0)
	equal(t, connect(t, there, 1).Exists(ctx, "key").Val(), 0)
	equal(t, there.Clock().Show().Mode, "running")
	all, err := server.Namespaces()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]int{}
	for _, namespace := range all {
		keys[namespace.Name] = namespace.Keys
	}
	equal(t, keys[here.Name], 1)
	dropped, err := server.Drop(here.Name)
	equal(t, err, nil)
	equal(t, dropped, true)
}

func TestANodeCrashesAndStarts(t *testing.T) {
	redlatch := server.Namespace(t)
	client := connect(t, redlatch, 1)
	client.Set(ctx, "key", "value", 0)
	redlatch.Nodes().CrashKeep(1)
	if client.Ping(ctx).Err() == nil {
		t.Fatal("a crashed node answers")
	}
	equal(t, redlatch.Nodes().List()[0].State, "crashed")
	redlatch.Nodes().Start(1)
	equal(t, client.Get(ctx, "key").Val(), "value")
	redlatch.Nodes().Crash(1)
	redlatch.Nodes().Start(1)
	equal(t, connect(t, redlatch, 1).Exists(ctx, "key").Val(), 0)
}

func TestANodePausesIsSkewedAndIsPartitioned(t *testing.T) {
	redlatch := server.Namespace(t)
	nodes, client := redlatch.Nodes(), connect(t, redlatch, 1)
	client.Ping(ctx)
	nodes.Pause(1)
	answer := make(chan error)
	go func() { answer <- client.Ping(ctx).Err() }()
	// Other nodes answer for this one: the clock can be moved while it is paused.
	redlatch.Clock().Advance(time.Second)
	equal(t, nodes.List()[0].State, "paused")
	nodes.Resume(1)
	equal(t, <-answer, nil)
	nodes.Skew(2, 3*time.Second)
	equal(t, nodes.List()[1].Skew, 3000)
	nodes.Partition(2, "far")
	equal(t, strings.Join(nodes.List()[1].Partitions, " "), "far")
	equal(t, connect(t, redlatch, 2).Ping(ctx).Err(), nil)
	nodes.Heal(2)
	equal(t, len(nodes.List()[1].Partitions), 0)
}

func TestALostReplyTakesTheLockAndDoesNotTellItsHolder(t *testing.T) {
	redlatch := server.Namespace(t)
	client := connect(t, redlatch, 1)
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("stock", redsync.WithTries(1))
	fault := redlatch.Faults().DropReply(redlatchtest.Where{Key: "st*", Command: "SET", Times: 1})
	if mutex.TryLock() == nil {
		t.Fatal("no reply was lost")
	}
	equal(t, fault.Hits(), 1)
}

func TestFaults(t *testing.T) {
	redlatch := server.Namespace(t)
	faults, client := redlatch.Faults(), connect(t, redlatch, 1)
	incr := redlatchtest.Where{Command: "INCR", Key: "count*", Times: 1}
	counter := func() string { return client.Get(ctx, "counter").Val() }

	ends := []func(redlatchtest.Where) *redlatchtest.Fault{
		faults.DropReply, faults.HalfReply, faults.DropBefore, faults.Reset,
	}
	for index, end := range ends {
		fault := end(incr)
		if client.Incr(ctx, "counter").Err() == nil {
			t.Fatal("a reply in spite of fault ", index)
		}
		equal(t, fault.Met(), 1)
		equal(t, fault.Remove(), true)
		equal(t, fault.Remove(), false)
	}
	equal(t, counter(), "2")

	faults.Error("OOM no memory", incr)
	equal(t, client.Incr(ctx, "counter").Err().Error(), "OOM no memory")
	faults.Clear()
	faults.Duplicate(incr)
	equal(t, client.Incr(ctx, "counter").Val(), 4)
	faults.Clear()
	faults.ExpireKey(incr)
	equal(t, faults.List()[0].Hits, 0)
	client.Incr(ctx, "counter")
	equal(t, counter(), "")
	faults.Clear()

	redlatch.Clock().Freeze()
	faults.Stall(time.Second, incr)
	faults.Delay(time.Second, redlatchtest.Where{Command: "DECR", Probability: 1})
	late := make(chan int64)
	go func() { late <- connect(t, redlatch, 1).Incr(ctx, "counter").Val() }()
	for counter() != "1" {
	}
	redlatch.Clock().Advance(time.Second + time.Millisecond)
	equal(t, <-late, 1)
	go func() { late <- connect(t, redlatch, 1).Decr(ctx, "counter").Val() }()
	for faults.List()[1].Hits == 0 {
	}
	equal(t, counter(), "1")
	redlatch.Clock().Advance(time.Second + time.Millisecond)
	equal(t, <-late, 0)
}

func TestGrantsAndRefusals(t *testing.T) {
	redlatch := server.Namespace(t)
	client := connect(t, redlatch, 1)
	client.SetNX(ctx, "lock:stock", "one", time.Minute)
	client.SetNX(ctx, "lock:stock", "two", time.Minute)
	events := redlatch.History(redlatchtest.Filter{Key: "lock:stock"})
	equal(t, len(events), 6)
	granted, refused := events[1], events[4]
	equal(t, granted.Kind, redlatchtest.EventGranted)
	equal(t, granted.Holder, "one")
	equal(t, granted.Lease, time.Minute.Milliseconds())
	equal(t, granted.Request, events[0].ID)
	equal(t, refused.Kind, redlatchtest.EventRefused)
	equal(t, refused.Holder, "two")
}

func TestHistory(t *testing.T) {
	redlatch := server.Namespace(t)
	client := connect(t, redlatch, 1)
	client.SetNX(ctx, "lock:stock", "worker", time.Minute)
	equal(t, len(redlatch.Check()), 0)
	client.Del(ctx, "lock:stock")
	equal(t, redlatch.Calls(redlatchtest.Filter{Key: "lock:*"})["DEL"], 1)
	events := redlatch.History(redlatchtest.Filter{Command: "DEL", Count: 1})
	equal(t, len(events), 1)
	equal(t, events[0].Kind, redlatchtest.EventRequest)
	equal(t, events[0].Key, "lock:stock")
	findings := redlatch.Check()
	equal(t, len(findings), 1)
	equal(t, findings[0].Rule, "blind-delete")
	timeline, err := redlatch.Timeline("text")
	equal(t, err, nil)
	if !strings.Contains(timeline, "lock:stock") {
		t.Fatal(timeline)
	}
}

func TestARefusedCommandIsAnErrorWithACode(t *testing.T) {
	_, err := server.Call("TEST.CLOCK", "SIDEWAYS")
	var refusal redlatchtest.CommandError
	if !errors.As(err, &refusal) || refusal.Code() != "ERR" {
		t.Fatal(err)
	}
}
