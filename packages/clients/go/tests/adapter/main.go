// The program adapter calls the client for Go as it is told by packages/clients/conformance/run.py. What it is asked and
// answers is in packages/clients/README.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
)

// request has the words of all verbs. Times are in seconds.
type request struct {
	ID int64
	Do string

	Library, Connection, Host, Password, Path, Master string
	Protocol, Port                                    int
	Ports                                             []int
	Budget                                            float64
	ReplyTimeout                                      float64 `json:"reply_timeout"`
	Hostile                                           bool
	OnUnavailable                                     string `json:"on_unavailable"`

	Hold, Key, To string
	Keys          []string
	AnyOf         []string `json:"any_of"`
	Rest          float64
	// Nil where it is not given.
	Lease *float64
	// All words: those that are not named here are options of take.
	words object
}

// kinds are in the order in which they count: a deadlock is a refusal.
var kinds = []struct {
	err  error
	name string
}{
	{locks.ErrDeadlock, "deadlock"}, {locks.ErrHeld, "held"}, {locks.ErrLost, "lost"}, {locks.ErrInvalid, "invalid"},
	{locks.ErrNotSupported, "not-supported"}, {locks.ErrRefused, "refused"}, {locks.ErrUnreachable, "unreachable"},
}

type adapter struct {
	client redis.UniversalClient
	locks  *locks.Locks
	// mutex is for the output and for holds.
	mutex sync.Mutex
	holds map[string]*locks.Held
}

type object = map[string]any

func main() {
	made := &adapter{holds: map[string]*locks.Held{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked request
		err := errors.Join(json.Unmarshal(lines.Bytes(), &asked), json.Unmarshal(lines.Bytes(), &asked.words))
		go made.answer(&asked, err)
	}
}

func (adapter *adapter) answer(asked *request, err error) {
	var found any
	if err == nil {
		found, err = adapter.do(asked)
	}
	answer := object{"id": asked.ID, "is": found}
	if err != nil {
		answer = object{"id": asked.ID, "fails": failureOf(err)}
	}
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	adapter.mutex.Lock()
	defer adapter.mutex.Unlock()
	fmt.Println(string(line))
}

func failureOf(err error) object {
	fails := object{"kind": "adapter", "says": err.Error()}
	for _, each := range kinds {
		if errors.Is(err, each.err) {
			fails["kind"] = each.name
			break
		}
	}
	var refusal *locks.HeldError
	if errors.As(err, &refusal) {
		fails["holder"] = fieldsOf(refusal.Holder)
	}
	return fails
}

func (adapter *adapter) do(asked *request) (any, error) {
	ctx := context.Background()
	switch asked.Do {
	case "libraries":
		ways := []string{"single", "unix", "cluster", "sentinel"}
		return []object{{"name": "go-redis " + redis.Version(), "protocols": []int{2, 3}, "connections": ways}}, nil
	case "open":
		adapter.client = clientOf(asked)
		settings := []locks.Setting{locks.Budget(secondsOf(asked.Budget))}
		if asked.OnUnavailable != "" {
			does := map[string]locks.Unavailable{"closed": locks.Closed, "open": locks.Open}
			settings = append(settings, locks.OnUnavailable(does[asked.OnUnavailable]))
		}
		adapter.locks = locks.New(adapter.client, settings...)
		return nil, nil
	case "close":
		clear(adapter.holds)
		adapter.locks.Close()
		return nil, adapter.client.Close()
	case "take":
		return adapter.take(ctx, asked)
	case "locked_by":
		holder, err := adapter.locks.LockedBy(ctx, asked.Key)
		return fieldsOf(holder), err
	}
	adapter.mutex.Lock()
	held := adapter.holds[asked.Hold]
	adapter.mutex.Unlock()
	if held == nil {
		return nil, fmt.Errorf("there is no verb %q, or no hold %q", asked.Do, asked.Hold)
	}
	return withHeld(ctx, held, asked)
}

func withHeld(ctx context.Context, held *locks.Held, asked *request) (any, error) {
	switch asked.Do {
	case "release":
		return held.Release(ctx)
	case "extend":
		var lease time.Duration
		if asked.Lease != nil {
			lease = secondsOf(*asked.Lease)
		}
		return nil, held.Extend(ctx, lease)
	case "leave":
		return nil, held.Leave(ctx, secondsOf(asked.Rest))
	case "transfer":
		var lease time.Duration
		if asked.Lease != nil {
			lease = max(secondsOf(*asked.Lease), time.Nanosecond)
		}
		return held.TransferTo(ctx, asked.To, lease)
	case "fenced":
		return nil, held.Fenced(ctx, locks.SQLite(noDatabase{}), "")
	case "check":
		select {
		case <-held.Lost():
			return nil, errors.Join(held.Err(), errors.New("it is told as lost"))
		default:
			return nil, held.Err()
		}
	case "remaining":
		if left := held.Remaining(); left != locks.Forever {
			return left.Seconds(), nil
		}
		return nil, nil
	case "lost":
		<-held.Lost()
		var lost *locks.LostError
		if !errors.As(context.Cause(held.Context(ctx)), &lost) {
			return nil, errors.New("the context of the hold does not say that it is lost")
		}
		return lost.Reason, nil
	}
	return nil, fmt.Errorf("there is no verb %q", asked.Do)
}

func (adapter *adapter) take(ctx context.Context, asked *request) (any, error) {
	options, err := optionsOf(asked.words)
	if err != nil {
		return nil, err
	}
	lock := adapter.locks.Lock(asked.Key, options)
	switch {
	case asked.Keys != nil:
		lock = adapter.locks.All(asked.Keys, options)
	case asked.AnyOf != nil:
		lock = adapter.locks.AnyOf(asked.AnyOf, options)
	}
	held, err := lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	adapter.mutex.Lock()
	defer adapter.mutex.Unlock()
	adapter.holds[asked.Hold] = held
	answer := object{"token": numberOf(held.Token(), 0), "owner": held.Owner(), "open": held.Open()}
	if asked.Keys == nil {
		answer["key"] = held.Key()
	}
	return answer, nil
}

// optionsOf reads options by the names that they have in Go, which JSON finds in lower case, too. Only times are numbers.
func optionsOf(words object) (options locks.Options, err error) {
	named := object{}
	for name, value := range words {
		switch name {
		case "id", "do", "hold", "key", "keys", "any_of":
		case "lease":
			// Zero is the default in Go: this is a lease that no server grants.
			named[name] = max(secondsOf(value.(float64)), time.Nanosecond)
		case "permits":
			named["permits"], named["of"] = value.([]any)[0], value.([]any)[1]
		case "modes":
			named[name] = modesOf(value.(object))
		case "priority":
			named[name] = value
		case "renew":
			named["NoRenewal"] = value == false
		default:
			if seconds, isTime := value.(float64); isTime {
				value = secondsOf(seconds)
			}
			named[strings.ReplaceAll(name, "_", "")] = value
		}
	}
	text, err := json.Marshal(named)
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.DisallowUnknownFields()
	return options, errors.Join(err, reader.Decode(&options))
}

func modesOf(words object) map[string]locks.Mode {
	modes := map[string]locks.Mode{}
	for key, mode := range words {
		if numbers, isPermits := mode.([]any); isPermits {
			modes[key] = locks.Mode{Permits: int(numbers[0].(float64)), Of: int(numbers[1].(float64))}
		} else {
			modes[key] = locks.Mode{Shared: mode == "shared"}
		}
	}
	return modes
}

// noDatabase is what no open hold asks.
type noDatabase struct{}

func (noDatabase) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("there is no database")
}

func (noDatabase) Commit() error { return nil }

func clientOf(asked *request) redis.UniversalClient {
	address := net.JoinHostPort(asked.Host, strconv.Itoa(asked.Port))
	limit := secondsOf(asked.ReplyTimeout)
	switch asked.Connection {
	case "cluster":
		var addresses []string
		for _, port := range asked.Ports {
			addresses = append(addresses, net.JoinHostPort(asked.Host, strconv.Itoa(port)))
		}
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses, Password: asked.Password, Protocol: asked.Protocol, ReadTimeout: limit,
		})
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: asked.Master, SentinelAddrs: []string{address}, Protocol: asked.Protocol, ReadTimeout: limit,
		})
	}
	options := &redis.Options{Addr: address, Password: asked.Password, Protocol: asked.Protocol, ReadTimeout: limit}
	if asked.Connection == "unix" {
		options.Network, options.Addr = "unix", asked.Path
	}
	return redis.NewClient(options)
}

func fieldsOf(holder *locks.Holder) any {
	if holder == nil {
		return nil
	}
	return object{
		"key": holder.Key, "owner": holder.Owner, "token": numberOf(holder.Token, 0), "kind": holder.Kind,
		"holders": holder.Holders, "permits": holder.Permits, "waiters": numberOf(holder.Waiters, -1), "meta": holder.Meta,
	}
}

// numberOf is nil for the value that says that there is none.
func numberOf(value, none int64) any {
	if value == none {
		return nil
	}
	return value
}

func secondsOf(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
