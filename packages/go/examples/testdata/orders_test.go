// Package orders is a user's: code that takes a lock, and its test, which `redlatch explore` runs.
package orders

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// With the bug it deletes the lock of the next holder.
const isMended = false

const release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

func TestPay(t *testing.T) {
	if os.Getenv("REDIS_PORT") == "" {
		t.Skip("there is no server")
	}
	if err := pay(); err != nil {
		t.Fatal(err)
	}
}

func pay() error {
	client, err := connect()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.ask("+OK", "SET", "orders", "me", "NX", "PX", "5000"); err != nil {
		// It may have been granted.
		return giveBack()
	}
	if err := client.ask(":1", "INCR", "paid"); err != nil {
		return err
	}
	if isMended {
		return client.ask(":1", "EVAL", release, "1", "orders", "me")
	}
	return client.ask(":1", "DEL", "orders")
}

// Asks until a server answers: it may be about to restart.
func giveBack() (err error) {
	for range 1000 {
		client, failure := connect()
		if failure == nil {
			if failure = client.ask(":", "EVAL", release, "1", "orders", "me"); failure == nil {
				return fmt.Errorf("the lock was not granted")
			}
		}
		err = failure
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

type client struct{ net.Conn }

func connect() (client, error) {
	connection, err := net.Dial("tcp", net.JoinHostPort(os.Getenv("REDIS_HOST"), os.Getenv("REDIS_PORT")))
	return client{connection}, err
}

// Sends a request. An error, if the reply does not begin as it is expected.
func (client client) ask(expected string, words ...string) error {
	fmt.Fprintf(client, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(client, "$%d\r\n%s\r\n", len(word), word)
	}
	reply, err := bufio.NewReader(client).ReadString('\n')
	if err == nil && !strings.HasPrefix(reply, expected) {
		err = fmt.Errorf("%q to %v", reply, words)
	}
	return err
}
