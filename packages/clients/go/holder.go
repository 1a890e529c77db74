package locks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Holder says who holds a lock. What the server does not tell is the zero value, or -1 where it says so.
type Holder struct {
	Key string
	// Owner is the name under which the lock was taken; empty for a value that names nobody.
	Owner string
	// Token is the fencing token; 0 if there is none.
	Token int64
	// Since is when it was taken.
	Since time.Time
	// Held is for how long it is held.
	Held time.Duration
	// Left is what is left of its lease; -1 without a lease.
	Left time.Duration
	// Meta is what the holder says of itself.
	Meta map[string]string
	// Kind is exclusive, shared, permits or reentrant; none for a key that is no lock.
	Kind string
	// Holders is how many hold it together. This is the first of them.
	Holders int
	// Permits is how many permits it has, or how often it holds the lock.
	Permits int64
	// Waiters is how many wait for the lock; -1 if that is not told.
	Waiters int64
	// Address is that of its connection.
	Address string
}

// String has a line for each thing that is known.
func (holder *Holder) String() string {
	lines := [][2]string{{"key", shown(holder.Key)}, {"holder", holder.who()}}
	add := func(name, text string, isKnown bool) {
		if isKnown {
			lines = append(lines, [2]string{name, text})
		}
	}
	add("at", holder.Address, holder.Address != "")
	for _, name := range slices.Sorted(maps.Keys(holder.Meta)) {
		add(shown(name), shown(holder.Meta[name]), true)
	}
	since := holder.Since.UTC().Format("2006-01-02 15:04:05 UTC")
	add("since", fmt.Sprintf("%s, for %.1f s", since, holder.Held.Seconds()), !holder.Since.IsZero())
	add("lease", fmt.Sprintf("%.1f s left", holder.Left.Seconds()), holder.Left >= 0)
	add("token", fmt.Sprint(holder.Token), holder.Token != 0)
	add("queue", fmt.Sprintf("%d waiting", holder.Waiters), holder.Waiters >= 0)
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line[0]))+1)
	}
	var text []string
	for _, line := range lines {
		text = append(text, fmt.Sprintf("  %-*s %s", width, line[0]+":", line[1]))
	}
	return strings.Join(text, "\n")
}

func (holder *Holder) who() string {
	name := shown(holder.Owner)
	if holder.Owner == "" {
		name = "unknown"
	}
	if holder.Holders > 1 {
		name += fmt.Sprintf(" and %d others", holder.Holders-1)
	}
	return name
}

// holderOf is the first holder in an answer of LOCK.WHO; nil if nobody holds the key.
func holderOf(reply any) *Holder {
	lock := fieldsOf(reply)
	holders, _ := lock["holders"].([]any)
	if len(holders) == 0 {
		return nil
	}
	first := fieldsOf(holders[0])
	holder := &Holder{
		Key:     text(lock["key"]),
		Owner:   text(first["owner"]),
		Token:   number(first["token"], 0),
		Held:    millis(number(first["held"], 0)),
		Left:    leftOf(first["left"]),
		Meta:    textsOf(first["meta"]),
		Kind:    text(lock["kind"]),
		Holders: len(holders),
		Permits: number(first["permits"], 1),
		Waiters: number(lock["waiters"], -1),
		Address: text(field(first["client"], "addr")),
	}
	if since, isTold := first["since"].(int64); isTold {
		holder.Since = time.UnixMilli(since)
	}
	return holder
}

// holderOfRefusal is what a refusal itself says of the holder.
func holderOfRefusal(key string, refused map[string]any) *Holder {
	return &Holder{
		Key: key, Owner: text(refused["holder"]), Token: number(refused["token"], 0), Left: leftOf(refused["lease"]),
		Meta: textsOf(refused["meta"]), Kind: "exclusive", Holders: 1, Permits: 1, Waiters: -1,
	}
}

func leftOf(reply any) time.Duration {
	if left, isTold := reply.(int64); isTold && left >= 0 {
		return millis(left)
	}
	return -1
}

// fieldsOf is a map, which RESP2 has as a list of names and values. Nothing is an empty one.
func fieldsOf(reply any) map[string]any {
	fields := map[string]any{}
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			fields[text(name)] = value
		}
	case []any:
		for index := 0; index+1 < len(reply); index += 2 {
			fields[text(reply[index])] = reply[index+1]
		}
	}
	return fields
}

// field is one value of a map; nil if there is none.
func field(reply any, name string) any {
	switch reply := reply.(type) {
	case map[any]any:
		return reply[name]
	case []any:
		for index := 0; index+1 < len(reply); index += 2 {
			if reply[index] == name {
				return reply[index+1]
			}
		}
	}
	return nil
}

func textsOf(reply any) map[string]string {
	texts := map[string]string{}
	for name, value := range fieldsOf(reply) {
		texts[name] = text(value)
	}
	return texts
}

func text(reply any) string {
	text, _ := reply.(string)
	return text
}

func number(reply any, otherwise int64) int64 {
	if number, isNumber := reply.(int64); isNumber {
		return number
	}
	return otherwise
}

func millis(count int64) time.Duration { return time.Duration(count) * time.Millisecond }
