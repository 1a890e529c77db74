package tests

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

// Servers for the tests: processes of redlatch and Redis, which end with the test that started them.

const patience = 30 * time.Second

var server *redlatchtest.Server

func TestMain(m *testing.M) {
	status := 1
	defer func() { os.Exit(status) }()
	var err error
	if server, err = redlatchtest.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer server.Stop()
	status = m.Run()
}

// program returns the path of a server that is named by a variable, or found in the search path. Without it the test
// is skipped, unless REDLATCH_REQUIRE_CLIENTS is set.
func program(t testing.TB, variable, name string) string {
	t.Helper()
	if named := os.Getenv(variable); named != "" {
		return named
	}
	found, err := exec.LookPath(name)
	if err != nil {
		missing(t, "REDLATCH_REQUIRE_CLIENTS", fmt.Sprintf("there is no %s: %s names it", name, variable))
	}
	return found
}

func missing(t testing.TB, variable, what string) {
	t.Helper()
	if os.Getenv(variable) != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// redlatchProgram is the program; the test package looks for others only without the variable.
func redlatchProgram(t testing.TB) string {
	t.Helper()
	return program(t, "REDLATCH_BINARY", "redlatch")
}

func optionsOf(namespace *redlatchtest.Namespace) *redis.Options {
	return &redis.Options{Addr: namespace.Addr(), Password: namespace.Password()}
}

// process is a server in a directory of its own, which is killed at the end.
type process struct {
	t      testing.TB
	words  []string
	folder string
	// socket is the path of its socket.
	socket  string
	command *exec.Cmd
}

// startProcess starts a program that listens at a socket. The word SOCKET stands for its path.
func startProcess(t testing.TB, words ...string) *process {
	t.Helper()
	// The path of a socket is short; that of a test's folder may not be.
	folder, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	made := &process{t: t, folder: folder, socket: filepath.Join(folder, "s")}
	for _, word := range words {
		if word == "SOCKET" {
			word = made.socket
		}
		made.words = append(made.words, word)
	}
	made.start()
	t.Cleanup(func() { made.kill() })
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: made.socket})
	defer client.Close()
	awaitServer(t, client)
	return made
}

func (process *process) start() {
	process.t.Helper()
	process.command = startIn(process.t, process.folder, process.words...)
}

// kill ends it by SIGKILL.
func (process *process) kill() {
	_ = process.command.Process.Kill()
	_ = process.command.Wait()
}

func (process *process) options() *redis.Options {
	return &redis.Options{Network: "unix", Addr: process.socket}
}

func startIn(t testing.TB, folder string, words ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(words[0], words[1:]...)
	command.Dir = folder
	log, err := os.OpenFile(filepath.Join(folder, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

func awaitServer(t testing.TB, client *redis.Client) {
	t.Helper()
	await(t, func() bool { return client.Ping(context.Background()).Err() == nil })
}

// await asks again and again until it is so.
func await(t testing.TB, isSo func() bool) {
	t.Helper()
	until := time.Now().Add(patience)
	for !isSo() {
		if time.Now().After(until) {
			t.Fatal("it is not so in time")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func startRedis(t *testing.T) *process {
	t.Helper()
	found := program(t, "REDLATCH_REDIS_SERVER", "redis-server")
	return startProcess(t, found, "--port", "0", "--unixsocket", "SOCKET", "--save", "", "--loglevel", "warning")
}

func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}
