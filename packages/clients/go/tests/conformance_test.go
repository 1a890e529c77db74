package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
)

// The steps of conformance.json, done with this client. What each step means is in packages/clients/README.md.

const patience = 30 * time.Second

type scenario struct {
	Name        string
	Holds       string
	Servers     []string
	Connections []string
	Peers       []string
	Client      struct {
		ReplyTimeout float64 `json:"reply_timeout"`
		Budget       float64
	}
	Steps []map[string]any
}

// conformancePath: REDLATCH_CONFORMANCE names the file where the tests have been copied from its place.
func conformancePath() string {
	if path := os.Getenv("REDLATCH_CONFORMANCE"); path != "" {
		return path
	}
	return "../../conformance.json"
}

// scenarios are all of them.
func scenarios() ([]scenario, error) {
	text, err := os.ReadFile(conformancePath())
	if err != nil {
		return nil, err
	}
	var file struct{ Scenarios []scenario }
	return file.Scenarios, json.Unmarshal(text, &file)
}

var failures = map[string][]error{
	"deadlock":        {locks.ErrDeadlock},
	"held":            {locks.ErrHeld},
	"held-or-refused": {locks.ErrHeld, locks.ErrRefused},
	"invalid":         {locks.ErrInvalid},
	"lost":            {locks.ErrLost},
	"not-supported":   {locks.ErrNotSupported},
	"refused":         {locks.ErrRefused},
	"unreachable":     {locks.ErrUnreachable},
}

// begun is an acquisition in the background.
type begun struct {
	held *locks.Held
	err  error
	done chan struct{}
}

// runner is a run of one scenario. `beside` sends a command on a connection beside the client's.
type runner struct {
	t       *testing.T
	locks   *locks.Locks
	beside  func(words ...any) *redis.Cmd
	restart func()
	holds   map[string]*locks.Held
	begun   map[string]*begun
}

func (runner *runner) run(steps []map[string]any) {
	verbs := map[string]func(what any, step map[string]any) error{
		"begin": runner.begin, "extend": runner.extend, "granted": runner.granted, "holds": runner.stillHolds,
		"leave": runner.leave, "listens": runner.listens,
		"locked_by": runner.lockedBy, "lost": runner.lost, "next_token": runner.nextToken, "release": runner.release,
		"remaining": runner.remaining, "restart": runner.restarts, "rise": runner.rise, "server": runner.server,
		"take":  runner.take,
		"token": runner.token, "until": runner.until,
	}
	for number, step := range steps {
		done := 0
		for verb, what := range step {
			do := verbs[verb]
			if do == nil {
				continue
			}
			done++
			started := time.Now()
			err := do(what, step)
			if err == nil {
				err = inTime(step, time.Since(started))
			}
			if err != nil {
				runner.t.Fatalf("step %d, %v: %v", number+1, step, err)
			}
		}
		// Other words of a step are parameters; `extend` has one that is named as an option.
		if done != 1 {
			runner.t.Fatalf("step %d, %v: it has %d verbs that are known", number+1, step, done)
		}
	}
}

// inTime compares what a step took with its bounds.
func inTime(step map[string]any, took time.Duration) error {
	_, isLimited := step["within"]
	if took < secondsOf(step["after"]) || isLimited && took > secondsOf(step["within"]) {
		return fmt.Errorf("it has taken %v", took)
	}
	return nil
}

func (runner *runner) take(name any, step map[string]any) error {
	held, err := runner.lock(step).Acquire(context.Background())
	if err == nil {
		runner.holds[name.(string)] = held
	}
	if err := compareFailure(step, err); err != nil {
		return err
	}
	for _, text := range listOf(step["says"]) {
		if !strings.Contains(err.Error(), runner.filled(text).(string)) {
			return fmt.Errorf("%q is not in: %w", text, err)
		}
	}
	if wanted, isAsked := step["holder"]; isAsked {
		var refusal *locks.HeldError
		if !errors.As(err, &refusal) {
			return err
		}
		return runner.compare(refusal.Holder, wanted)
	}
	return nil
}

func compareFailure(step map[string]any, err error) error {
	name, mustFail := step["fails"].(string)
	switch kinds := failures[name]; {
	case !mustFail:
		return err
	case kinds == nil:
		return fmt.Errorf("unknown failure %q", name)
	case err == nil:
		return errors.New("it did not fail")
	default:
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return nil
			}
		}
		return err
	}
}

func (runner *runner) begin(name any, step map[string]any) error {
	begun := &begun{done: make(chan struct{})}
	runner.begun[name.(string)] = begun
	lock := runner.lock(step)
	go func() {
		defer close(begun.done)
		begun.held, begun.err = lock.Acquire(context.Background())
	}()
	return nil
}

func (runner *runner) granted(name any, _ map[string]any) error {
	begun := runner.begun[name.(string)]
	select {
	case <-begun.done:
		runner.holds[name.(string)] = begun.held
		return begun.err
	case <-time.After(patience):
		return errors.New("it still waits")
	}
}

func (runner *runner) release(name any, step map[string]any) error {
	wasHeld, err := runner.holds[name.(string)].Release(context.Background())
	if err == nil && wasHeld != step["gives"] {
		return fmt.Errorf("it gives %v", wasHeld)
	}
	return compareFailure(step, err)
}

func (runner *runner) leave(name any, step map[string]any) error {
	return compareFailure(step, runner.holds[name.(string)].Leave(context.Background(), secondsOf(step["rest"])))
}

func (runner *runner) extend(name any, step map[string]any) error {
	return compareFailure(step, runner.holds[name.(string)].Extend(context.Background(), secondsOf(step["lease"])))
}

func (runner *runner) stillHolds(name any, _ map[string]any) error {
	held := runner.holds[name.(string)]
	select {
	case <-held.Lost():
		return held.Err()
	default:
	}
	if held.Err() == nil && held.Remaining() <= 0 {
		return errors.New("nothing remains")
	}
	return held.Err()
}

func (runner *runner) lost(name any, step map[string]any) error {
	held := runner.holds[name.(string)]
	select {
	case <-held.Lost():
	case <-time.After(patience):
		return errors.New("it is not lost")
	}
	var lost *locks.LostError
	if !errors.As(held.Err(), &lost) || held.Remaining() != 0 {
		return fmt.Errorf("it says %w, with %v left", held.Err(), held.Remaining())
	}
	if !contains(listOf(step["reason"]), string(lost.Reason)) {
		return fmt.Errorf("reason %s", lost.Reason)
	}
	for _, text := range listOf(step["says"]) {
		if !strings.Contains(lost.Error(), text.(string)) {
			return fmt.Errorf("%q is not in: %w", text, lost)
		}
	}
	if cause := context.Cause(held.Context(context.Background())); !errors.Is(cause, locks.ErrLost) {
		return fmt.Errorf("its context says %w", cause)
	}
	return nil
}

func (runner *runner) listens(name any, _ map[string]any) error {
	// It is subscribed, and has renewed what it held before.
	words := []any{"LOCK.WHO", runner.holds[name.(string)].Key()}
	return runner.await(words, "holders.0.renewals", func(found any) bool {
		count, isNumber := numberOf(found)
		return isNumber && count >= 1
	})
}

func (runner *runner) remaining(name any, step map[string]any) error {
	found := runner.holds[name.(string)].Remaining()
	if least, isAsked := step["at_least"]; isAsked && found < secondsOf(least) {
		return fmt.Errorf("%v is left", found)
	}
	if most, isAsked := step["at_most"]; isAsked && found > secondsOf(most) {
		return fmt.Errorf("%v is left", found)
	}
	return nil
}

func (runner *runner) token(name any, step map[string]any) error {
	wanted, _ := numberOf(step["is"])
	if found := runner.holds[name.(string)].Token(); found != int64(wanted) {
		return fmt.Errorf("it is %d", found)
	}
	return nil
}

func (runner *runner) rise(names any, _ map[string]any) error {
	last := int64(0)
	for _, name := range listOf(names) {
		token := runner.holds[name.(string)].Token()
		if token <= last {
			return fmt.Errorf("%d comes after %d", token, last)
		}
		last = token
	}
	return nil
}

func (runner *runner) nextToken(names any, _ map[string]any) error {
	pair := listOf(names)
	first, second := runner.holds[pair[0].(string)].Token(), runner.holds[pair[1].(string)].Token()
	if second != first+1 {
		return fmt.Errorf("%d comes after %d", second, first)
	}
	return nil
}

func (runner *runner) lockedBy(key any, step map[string]any) error {
	holder, err := runner.locks.LockedBy(context.Background(), key.(string))
	if err != nil {
		return err
	}
	return runner.compare(holder, step["is"])
}

func (runner *runner) server(words any, step map[string]any) error {
	answer, err := runner.ask(listOf(words))
	if err != nil {
		return err
	}
	if wanted, isAsked := step["answers"]; isAsked && !same(answer, runner.filled(wanted)) {
		return fmt.Errorf("it answers %v", answer)
	}
	return nil
}

func (runner *runner) until(words any, step map[string]any) error {
	field, _ := step["field"].(string)
	return runner.await(listOf(words), field, func(found any) bool {
		if wanted, isAsked := step["is"]; isAsked {
			return same(found, wanted)
		}
		count, isNumber := numberOf(found)
		least, hasLeast := numberOf(step["at_least"])
		most, hasMost := numberOf(step["at_most"])
		return isNumber && (!hasLeast || count >= least) && (!hasMost || count <= most)
	})
}

func (runner *runner) restarts(any, map[string]any) error {
	runner.restart()
	return nil
}

func (runner *runner) lock(step map[string]any) *locks.Lock {
	options := locks.Options{
		Lease: secondsOf(step["lease"]), Wait: secondsOf(step["wait"]), Delay: secondsOf(step["delay"]),
		Shared: step["shared"] == true, Reentrant: step["reentrant"] == true, Session: step["session"] == true,
		NoRenewal: step["renew"] == false,
	}
	if lease, isAsked := step["lease"]; isAsked && lease == 0.0 {
		// Zero is the default in Go: this is a lease that no server grants.
		options.Lease = time.Nanosecond
	}
	if permits := listOf(step["permits"]); permits != nil {
		options.Permits, options.Of = int(permits[0].(float64)), int(permits[1].(float64))
	}
	if owner, isAsked := step["owner"]; isAsked {
		options.Owner = runner.filled(owner).(string)
	}
	if meta, isAsked := step["meta"].(map[string]any); isAsked {
		options.Meta = map[string]string{}
		for name, value := range meta {
			options.Meta[name] = runner.filled(value).(string)
		}
	}
	keys, hasKeys := step["keys"]
	if !hasKeys {
		return runner.locks.Lock(step["key"].(string), options)
	}
	var names []string
	for _, key := range listOf(keys) {
		names = append(names, key.(string))
	}
	return runner.locks.All(names, options)
}

func (runner *runner) await(words []any, field string, fits func(any) bool) error {
	until := time.Now().Add(patience)
	for {
		// While the server is down, there is no answer.
		found, err := runner.ask(words)
		if field != "" {
			for _, name := range strings.Split(field, ".") {
				found = fieldOf(found, name)
			}
		}
		if err == nil && fits(found) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("it is %v (%w)", found, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (runner *runner) ask(words []any) (any, error) {
	filled := make([]any, 0, len(words))
	for _, word := range words {
		filled = append(filled, runner.filled(word))
	}
	answer, err := runner.beside(filled...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return answer, err
}

// filled: `$a.token` stands for what the hold `a` has; `{"repeat": ...}` for a long text.
func (runner *runner) filled(value any) any {
	switch value := value.(type) {
	case map[string]any:
		return strings.Repeat(value["repeat"].(string), int(value["times"].(float64)))
	case string:
		for name, held := range runner.holds {
			value = strings.ReplaceAll(value, "$"+name+".token", strconv.FormatInt(held.Token(), 10))
			value = strings.ReplaceAll(value, "$"+name+".owner", held.Owner())
		}
		return value
	}
	return value
}

func (runner *runner) compare(holder *locks.Holder, wanted any) error {
	fields, isSomebody := wanted.(map[string]any)
	if !isSomebody || holder == nil {
		if isSomebody != (holder != nil) {
			return fmt.Errorf("the holder is %v", holder)
		}
		return nil
	}
	for name, value := range fields {
		field := reflect.ValueOf(*holder).FieldByName(strings.ToUpper(name[:1]) + name[1:])
		if !field.IsValid() {
			return fmt.Errorf("a holder has no %s", name)
		}
		if meta, isMeta := value.(map[string]any); isMeta {
			value = fmt.Sprint(meta)
		}
		if !same(fmt.Sprint(field.Interface()), runner.filled(fmt.Sprint(value))) {
			return fmt.Errorf("%s is %v", name, field.Interface())
		}
	}
	return nil
}

func secondsOf(value any) time.Duration {
	seconds, _ := value.(float64)
	return time.Duration(seconds * float64(time.Second))
}

func listOf(value any) []any {
	list, _ := value.([]any)
	return list
}

func contains(list []any, wanted string) bool {
	for _, each := range list {
		if each == wanted {
			return true
		}
	}
	return false
}

func numberOf(value any) (float64, bool) {
	switch value := value.(type) {
	case float64:
		return value, true
	case int64:
		return float64(value), true
	}
	return 0, false
}

// same compares an answer with a value of the file.
func same(found, wanted any) bool {
	if one, isNumber := numberOf(found); isNumber {
		other, isNumber := numberOf(wanted)
		return isNumber && one == other
	}
	return found == wanted
}

func fieldOf(reply any, name string) any {
	switch reply := reply.(type) {
	case map[any]any:
		return reply[name]
	case []any:
		if index, err := strconv.Atoi(name); err == nil && index < len(reply) {
			return reply[index]
		}
	}
	return nil
}
