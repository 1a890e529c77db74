// Command check reads the history of a run, a call per line in JSON, and says whether Porcupine finds an order of its calls
// that a lock with leases, or a register, allows: `accepted`, `rejected KEY` or `undecided KEY`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// timeout is how long one key may take.
const timeout = 60 * time.Second

// call is a request of a client. Times are nanoseconds of one monotonic clock; HeardNs is 0 if there was no answer.
type call struct {
	Lock     string `json:"lock"`
	Token    string `json:"token"`
	Ask      string `json:"ask"`
	LeaseMs  int64  `json:"lease_ms"`
	SentNs   int64  `json:"sent_ns"`
	HeardNs  int64  `json:"heard_ns"`
	Answer   string `json:"answer"`
	Holder   string `json:"holder"`
	Fence    uint64 `json:"fence"`
	WaitedMs int64  `json:"waited_ms"`
	// hungUpNs is when the connection of its session may have ended.
	hungUpNs int64
}

func main() {
	if len(os.Args) != 2 {
		fail("one argument, the file of a history")
	}
	file, err := os.Open(os.Args[1])
	must(err)
	defer file.Close()
	locks := map[string][]call{}
	for lines := json.NewDecoder(bufio.NewReader(file)); lines.More(); {
		var read call
		must(lines.Decode(&read))
		locks[read.Lock] = append(locks[read.Lock], read)
	}
	if len(locks) == 0 {
		fail("a history without calls")
	}
	for lock, calls := range locks {
		model, history := lease, operations(calls)
		if isRegister(calls) {
			model, history = register, accesses(calls)
		}
		switch porcupine.CheckOperationsTimeout(model, history, timeout) {
		case porcupine.Illegal:
			fmt.Println("rejected", lock)
			return
		case porcupine.Unknown:
			fmt.Println("undecided", lock)
			return
		}
	}
	fmt.Println("accepted")
}

// isRegister says whether the key is written, read and deleted, and no lock.
func isRegister(calls []call) bool {
	return slices.Contains([]string{"set", "get", "del"}, calls[0].Ask)
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}
