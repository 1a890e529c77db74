package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

// Servers for the tests: processes of redlatch, Redis, Valkey and etcd, which end with the test that started them.

var (
	server  *redlatchtest.Server
	cluster *redlatchtest.Server
)

func TestMain(m *testing.M) {
	status := 1
	defer func() { os.Exit(status) }()
	var err error
	if server, err = redlatchtest.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer server.Stop()
	if cluster, err = redlatchtest.Start(redlatchtest.Nodes(3), redlatchtest.Flags("--cluster-enabled", "yes")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer cluster.Stop()
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

// startPeers starts the servers of packages/clients/peer.py, which serve nobody, and returns their ports by name.
func startPeers(t *testing.T) map[string]int {
	t.Helper()
	script := filepath.Join(filepath.Dir(conformancePath()), "peer.py")
	_, port, _ := strings.Cut(server.Namespace(t).Addr(), ":")
	command := exec.Command("python3", script, port)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	ports := map[string]int{}
	if err == nil {
		err = json.NewDecoder(stdout).Decode(&ports)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Wait()
	})
	return ports
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

// process is a server in a directory of its own, which may be killed and started again.
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

func (process *process) restart() {
	process.kill()
	process.start()
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

func startPlain(t *testing.T, product string) *process {
	t.Helper()
	found := program(t, "REDLATCH_"+strings.ToUpper(product)+"_SERVER", product+"-server")
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

// startSentinel starts a Sentinel of Redis that watches a server, and returns its address.
func startSentinel(t *testing.T, watchedPort string) string {
	t.Helper()
	port, folder := freePort(t), t.TempDir()
	config := filepath.Join(folder, "sentinel.conf")
	text := fmt.Sprintf("port %s\nsentinel monitor locks 127.0.0.1 %s 1\n", port, watchedPort)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	command := startIn(t, folder, program(t, "REDLATCH_REDIS_SERVER", "redis-server"), config, "--sentinel")
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer client.Close()
	awaitServer(t, client)
	return "127.0.0.1:" + port
}

// nodes are two redlatch on an etcd, which clients find as Sentinels.
type nodes struct {
	t         testing.TB
	folder    string
	program   string
	endpoint  string
	ports     []string
	processes map[string]*exec.Cmd
}

func startNodes(t *testing.T) *nodes {
	t.Helper()
	etcd := program(t, "REDLATCH_ETCD", "etcd")
	made := &nodes{t: t, folder: t.TempDir(), program: redlatchProgram(t), processes: map[string]*exec.Cmd{}}
	said, _ := exec.Command(made.program, "check-config", "--cluster-etcd", "http://127.0.0.1:1").CombinedOutput()
	if strings.Contains(string(said), "lacks the feature") {
		missing(t, "REDLATCH_REQUIRE_CLIENTS", "this redlatch has no feature etcd")
	}
	made.endpoint = "http://127.0.0.1:" + freePort(t)
	peer := "http://127.0.0.1:" + freePort(t)
	made.processes["etcd"] = startIn(t, made.folder, etcd, "--name", "m0", "--data-dir", filepath.Join(made.folder, "m0"),
		"--listen-client-urls", made.endpoint, "--advertise-client-urls", made.endpoint, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "m0="+peer)
	t.Cleanup(func() {
		for _, process := range made.processes {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	})
	for range 2 {
		port := freePort(t)
		made.ports = append(made.ports, port)
		made.startNode(port)
	}
	made.leader()
	return made
}

func (nodes *nodes) startNode(port string) {
	nodes.t.Helper()
	nodes.processes[port] = startIn(nodes.t, nodes.folder, nodes.program, "--port", port, "--cluster-etcd", nodes.endpoint)
}

// leader is the port of the node that leads, once both answer.
func (nodes *nodes) leader() string {
	nodes.t.Helper()
	leader := ""
	for _, port := range nodes.ports {
		client := redis.NewSentinelClient(&redis.Options{Addr: "127.0.0.1:" + port})
		await(nodes.t, func() bool {
			found, err := client.GetMasterAddrByName(context.Background(), "mymaster").Result()
			if err == nil && len(found) == 2 {
				leader = found[1]
			}
			return err == nil && leader != ""
		})
		_ = client.Close()
	}
	return leader
}

// killLeader ends it, and starts it again as a standby.
func (nodes *nodes) killLeader() {
	nodes.t.Helper()
	port := nodes.leader()
	_ = nodes.processes[port].Process.Kill()
	_ = nodes.processes[port].Wait()
	nodes.startNode(port)
}
