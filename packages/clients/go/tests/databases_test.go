package tests

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"redlatch.dev/locks"

	"github.com/redis/go-redis/v9"
)

// Databases for the tests, each in a directory of its own, without a TCP port. They need the programs of PostgreSQL
// and MariaDB. As root, servers run as the users of their packages.

// databaseProgram finds a program, also where Debian has those of PostgreSQL. Without it the test is skipped, unless
// REDLATCH_REQUIRE_DATABASES is set.
func databaseProgram(t *testing.T, name string) string {
	t.Helper()
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	found = append(found, "/usr/sbin/"+name)
	for _, path := range found {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	missing(t, "REDLATCH_REQUIRE_DATABASES", "there is no "+name)
	return ""
}

// as is the command, as that user where this one is root, which these servers refuse to run as.
func as(t *testing.T, name string, words ...string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		return words
	}
	return append([]string{databaseProgram(t, "runuser"), "-u", name, "--"}, words...)
}

// folderOf makes a directory that the user owns.
func folderOf(t *testing.T, name string) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if os.Geteuid() == 0 {
		owner, err := user.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		number, _ := strconv.Atoi(owner.Uid)
		if err := os.Chown(folder, number, -1); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func runOnce(t *testing.T, input string, words ...string) {
	t.Helper()
	command := exec.Command(words[0], words[1:]...)
	command.Stdin, command.Dir = strings.NewReader(input), "/"
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", words, err, said)
	}
}

// serve runs a server until the test ends, and returns once it is ready.
func serve(t *testing.T, isReady func() bool, words ...string) {
	t.Helper()
	command := startIn(t, t.TempDir(), words...)
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		stopped := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		stopped.Stop()
	})
	await(t, isReady)
}

// startPostgres returns the directory of its socket.
func startPostgres(t *testing.T) string {
	t.Helper()
	initdb, postgres, ready := databaseProgram(t, "initdb"), databaseProgram(t, "postgres"), databaseProgram(t, "pg_isready")
	folder := folderOf(t, "postgres")
	data := filepath.Join(folder, "data")
	runOnce(t, "", as(t, "postgres", initdb, "-A", "trust", "-U", "postgres", "-D", data)...)
	isReady := func() bool { return exec.Command(ready, "-q", "-h", folder).Run() == nil }
	serve(t, isReady, as(t, "postgres", postgres, "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off")...)
	return folder
}

// startMariaDB returns the path of its socket. Its database is shop.
func startMariaDB(t *testing.T, statements string) string {
	t.Helper()
	install, server := databaseProgram(t, "mariadb-install-db"), databaseProgram(t, "mariadbd")
	client := databaseProgram(t, "mariadb")
	folder := folderOf(t, "mysql")
	data, socket := filepath.Join(folder, "data"), filepath.Join(folder, "socket")
	runOnce(t, "", as(t, "mysql", install, "--no-defaults", "--datadir="+data, "--skip-test-db")...)
	isReady := func() bool {
		return exec.Command(client, "--no-defaults", "--socket="+socket, "-e", "SELECT 1").Run() == nil
	}
	serve(t, isReady, as(t, "mysql", server, "--no-defaults", "--datadir="+data, "--socket="+socket, "--skip-networking",
		"--pid-file="+filepath.Join(folder, "pid"), "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0")...)
	runOnce(t, "CREATE DATABASE shop", client, "--no-defaults", "--socket="+socket)
	runOnce(t, statements, client, "--no-defaults", "--socket="+socket, "shop")
	return socket
}

// newLocksOn are locks of a server that is a process.
func newLocksOn(t *testing.T, process *process) *locks.Locks {
	client := redis.NewClient(process.options())
	made := locks.New(client)
	t.Cleanup(func() {
		made.Close()
		_ = client.Close()
	})
	return made
}
