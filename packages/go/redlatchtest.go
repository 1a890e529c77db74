// Package redlatchtest runs a redlatch server in tests: a lock server that speaks the Redis protocol, and whose clock,
// failures and history the test commands.
//
//	func TestLease(t *testing.T) {
//		redlatch := redlatchtest.Run(t).Namespace(t)
//		redlatch.Clock().Freeze()
//		// The code under test is given redlatch.URL().
//		redlatch.Clock().Advance(30 * time.Second)
//	}
//
// The program is the one that the variable REDLATCH_BINARY names, else one that the test binary carries ([Carry]), else redlatch in the
// search path, else in the folder redlatch of the user's cache. One server may serve many tests: [Start] it in TestMain, and give each test a [Server.Namespace].
//
// The methods of a [Namespace] fail its test when the server refuses them. Like [testing.T.Fatal], call them from the goroutine
// of the test.
package redlatchtest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a running server.
type Server struct {
	// URL is that of the namespace default.
	URL string `json:"url"`
	// Ports has the port of each node.
	Ports []int `json:"ports"`
	// PID is the number of the process.
	PID int `json:"pid"`
	// Version is that of the program.
	Version string `json:"version"`

	binary  string
	host    string
	process *exec.Cmd
	ended   chan struct{}
	guard   sync.Mutex
	control *connection
}

// Option is an option of [Run] and [Start].
type Option func(*options)

type options struct {
	binary string
	flags  []string
}

// Nodes opens so many ports, each a store of its own. Default: 1.
func Nodes(count int) Option {
	return Flags("--nodes", strconv.Itoa(count))
}

// Flags are further flags of the program.
func Flags(flags ...string) Option {
	return func(options *options) { options.flags = append(options.flags, flags...) }
}

// Binary is the path of the program.
func Binary(path string) Option {
	return func(options *options) { options.binary = path }
}

// Run starts a server that ends with the test.
func Run(t testing.TB, options ...Option) *Server {
	t.Helper()
	server, err := Start(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// Start starts a server on free ports of this machine, and returns once it accepts connections. It ends with [Server.Stop], or
// with this process, however that ends.
func Start(with ...Option) (*Server, error) {
	var chosen options
	for _, option := range with {
		option(&chosen)
	}
	binary, err := find(chosen.binary)
	if err != nil {
		return nil, err
	}
	flags := []string{"--port", "auto", "--ready-json", "--enable-test-commands", "local"}
	flags = append(flags, "--exit-with-parent", strconv.Itoa(os.Getpid()))
	command := exec.Command(binary, append(flags, chosen.flags...)...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("redlatch does not start: %w: REDLATCH_BINARY, or the option Binary, must name a program for this "+
			"system and processor that this user may execute", err)
	}
	watchdog := time.AfterFunc(processTimeMax, func() { _ = command.Process.Kill() })
	line, err := bufio.NewReader(output).ReadBytes('\n')
	watchdog.Stop()
	server := &Server{binary: binary, process: command, ended: make(chan struct{})}
	if err == nil {
		err = json.Unmarshal(line, server)
	}
	if err != nil {
		_ = command.Process.Kill()
		failure := command.Wait()
		said := strings.TrimSpace(complaint.String())
		return nil, fmt.Errorf("redlatch does not start: %s (%s: %v)", said, binary, failure)
	}
	if address, err := url.Parse(server.URL); err == nil {
		server.host = address.Hostname()
	}
	go func() {
		_ = command.Wait()
		close(server.ended)
	}()
	return server, nil
}

// Stop ends the server, and returns when it has ended.
func (server *Server) Stop() {
	server.guard.Lock()
	defer server.guard.Unlock()
	if server.control != nil {
		server.control.close()
		server.control = nil
	}
	if server.process.Process.Signal(syscall.SIGTERM) != nil {
		// Windows has no such signal.
		_ = server.process.Process.Kill()
	}
	select {
	case <-server.ended:
	case <-time.After(processTimeMax):
		_ = server.process.Process.Kill()
		<-server.ended
	}
}

// Namespace is a new namespace. It is dropped at the end of the test. If the test has failed, its timeline is logged before.
func (server *Server) Namespace(t testing.TB) *Namespace {
	t.Helper()
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	return server.NamedNamespace(t, "go-"+hex.EncodeToString(random))
}

// NamedNamespace is like [Server.Namespace], with a name of your own: 1 to 128 letters, digits and ". _ : / @ -".
func (server *Server) NamedNamespace(t testing.TB, name string) *Namespace {
	namespace := &Namespace{Name: name, server: server, t: t, open: map[int]*connection{}, silent: map[int]bool{}}
	t.Cleanup(namespace.finish)
	return namespace
}

// Drop ends a namespace and disconnects its clients. False if there is none of that name.
func (server *Server) Drop(name string) (bool, error) {
	dropped, err := server.Call("TEST.NAMESPACE", "DROP", name)
	return dropped == int64(1), err
}

// Namespaces are all namespaces of the server.
func (server *Server) Namespaces() ([]NamespaceState, error) {
	reply, err := server.Call("TEST.NAMESPACE", "LIST")
	return decode[[]NamespaceState](reply, err)
}

// Call sends a command in the namespace default. A reply is nil, a string, int64, float64, bool, []any or map[string]any.
func (server *Server) Call(words ...any) (any, error) {
	server.guard.Lock()
	defer server.guard.Unlock()
	if server.control == nil {
		control, err := dial(server.host, server.Ports[0], "")
		if err != nil {
			return nil, err
		}
		server.control = control
	}
	reply, err := server.control.call(words...)
	if err != nil && !isRefusal(err) {
		server.control.close()
		server.control = nil
	}
	return reply, err
}

// A start or an end that takes longer has failed.
const processTimeMax = 30 * time.Second
