package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatExplorePrintsFailsUntilTheBugIsMended(t *testing.T) {
	text, err := os.ReadFile("testdata/orders_test.go")
	if err != nil {
		t.Skip(err)
	}
	program, err := exec.LookPath(os.Getenv("REDLATCH_BINARY"))
	if err != nil {
		t.Skip("REDLATCH_BINARY names no program")
	}
	folder := t.TempDir()
	if err := os.Symlink(program, filepath.Join(folder, "redlatch")); err != nil {
		t.Skip(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(words ...string) (string, error) {
		command := exec.Command(words[0], words[1:]...)
		command.Dir = folder
		output, err := command.CombinedOutput()
		return string(output), err
	}

	write("go.mod", "module orders\n\ngo 1.25.0\n")
	write("orders_test.go", string(text))
	if output, err := run("go", "test", "-c", "-o", "orders.test"); err != nil {
		t.Fatal(output)
	}
	found, _ := run("redlatch", "explore", "--", "./orders.test", "-test.run", "TestPay")
	_, test, _ := strings.Cut(found, "shows a bug:\n\n")
	write("kept_test.go", test[:strings.LastIndex(test, "}\n")+2])

	output, err := run("go", "test")
	if err == nil || !strings.Contains(output, "foreign-delete with paused@SET:1: ") {
		t.Fatalf("the bug is not found again: %s", output)
	}
	write("orders_test.go", strings.Replace(string(text), "isMended = false", "isMended = true", 1))
	if output, err := run("go", "test"); err != nil {
		t.Fatalf("the bug is mended: %s", output)
	}
}
