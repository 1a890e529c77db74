package tests

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"redlatch.dev/locks"
)

// A hold belongs to the process that took it.

func TestAHoldIsNotEncoded(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{})
	if text, err := json.Marshal(held); err != nil || string(text) != "{}" {
		t.Fatalf("JSON: %s, %v", text, err)
	}
	if err := gob.NewEncoder(&bytes.Buffer{}).Encode(held); err == nil {
		t.Fatal("gob takes it")
	}
	if holder := holderOf(t, l, "k"); holder == nil || holder.Token != held.Token() {
		t.Fatalf("it is held by %v", holder)
	}
}

func TestVetRefusesTheCopyOfAHold(t *testing.T) {
	said, err := exec.Command("go", "vet", "./testdata/copied").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "copies lock value: redlatch.dev/locks.Held contains sync.Mutex") {
		t.Fatalf("%v: %s", err, said)
	}
}
