package examples

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"redlatch.dev/redlatchtest"
)

// server serves the tests of backend_test.go.
var server *redlatchtest.Server

// The variable that makes this program the parent of a server, or lets a test fail.
const role = "REDLATCHTEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	if server, err = redlatchtest.Start(redlatchtest.Nodes(5)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if os.Getenv(role) == "parent" {
		fmt.Println(server.Ports[0])
		select {}
	}
	status := m.Run()
	server.Stop()
	os.Exit(status)
}

func TestAServerEndsWhenItsParentIsKilled(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), role+"=parent")
	output, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	port, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))
	equal(t, accepts(address), true)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for accepts(address) {
		time.Sleep(50 * time.Millisecond)
	}
}

func TestAServerStops(t *testing.T) {
	short, err := redlatchtest.Start()
	equal(t, err, nil)
	equal(t, len(short.Ports), 1)
	short.Stop()
	short.Stop()
	equal(t, accepts(net.JoinHostPort("127.0.0.1", fmt.Sprint(short.Ports[0]))), false)
}

func TestAStartThatFailsSaysWhy(t *testing.T) {
	_, err := redlatchtest.Start(redlatchtest.Flags("--no-such-flag"))
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Fatal(err)
	}
	_, err = redlatchtest.Start(redlatchtest.Binary("/nowhere/redlatch"))
	if err == nil || !strings.Contains(err.Error(), "/nowhere/redlatch") {
		t.Fatal(err)
	}
}

func TestAProgramOfAnotherProcessorIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "größer als redlatch")
	// An ELF file for 32-bit ARM, and nothing that Windows starts.
	head := append([]byte("\x7fELF\x01\x01\x01"), make([]byte, 57)...)
	head[18] = 40
	for _, mode := range []os.FileMode{0o644, 0o755} {
		if err := os.WriteFile(file, head, mode); err != nil {
			t.Fatal(err)
		}
		_, err := redlatchtest.Start(redlatchtest.Binary(file))
		if err == nil || !strings.Contains(err.Error(), "for this system and processor that this user may execute") {
			t.Fatal(err)
		}
		os.Remove(file)
	}
}

func TestFailsOnPurpose(t *testing.T) {
	if os.Getenv(role) != "failing" {
		t.Skip("only for the next test")
	}
	redlatch := server.Namespace(t)
	redlatch.Faults().DropReply(redlatchtest.Where{Command: "SETNX"})
	connect(t, redlatch, 1).Set(ctx, "lock:shown", "worker", 0)
	t.Fail()
}

func TestAFailedTestShowsItsTimelineAndTheFaultsThatNeverHit(t *testing.T) {
	run := exec.Command(os.Args[0], "-test.run", "^TestFailsOnPurpose$")
	run.Env = append(os.Environ(), role+"=failing")
	output, err := run.CombinedOutput()
	if err == nil {
		t.Fatal("it passed")
	}
	for _, pattern := range []string{`redlatch timeline\n[^\x00]*lock:shown`, `fault 1 never hit: .*SETNX`} {
		if !regexp.MustCompile(pattern).Match(output) {
			t.Fatalf("no %s in\n%s", pattern, output)
		}
	}
}

func accepts(address string) bool {
	connection, err := net.Dial("tcp", address)
	if err == nil {
		_ = connection.Close()
	}
	return err == nil
}
