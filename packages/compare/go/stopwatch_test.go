package compare

import (
	"fmt"
	"time"
)

// stopwatch prints how long the start of the server and the body of a test take.
type stopwatch struct{ since time.Time }

func newStopwatch() *stopwatch {
	return &stopwatch{time.Now()}
}

func (watch *stopwatch) print(part string) {
	fmt.Printf("stopwatch %s %.6f\n", part, time.Since(watch.since).Seconds())
	watch.since = time.Now()
}
