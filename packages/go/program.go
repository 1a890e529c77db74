package redlatchtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// carried is what [Carry] was given.
var carried []byte

// Carry has servers started from this program, which the test binary carries, unless REDLATCH_BINARY or the option [Binary] names
// another one. It is written to the user's cache once, under the hash of its bytes. Call it in an init function, under a build tag:
//
//	//go:build redlatch_embedded
//
//	//go:embed redlatch
//	var program []byte
//
//	func init() { redlatchtest.Carry(program) }
func Carry(program []byte) { carried = program }

// find returns the path of the program: the one that is named, else by the variable, else the carried one, else that of the search
// path, else the one in the user's cache.
func find(named string) (string, error) {
	if named == "" {
		named = os.Getenv("REDLATCH_BINARY")
	}
	if named != "" {
		return named, nil
	}
	if carried != nil {
		return unpack(carried)
	}
	if found, err := exec.LookPath("redlatch"); err == nil {
		return found, nil
	}
	cached, err := cache()
	if err == nil {
		cached, err = exec.LookPath(filepath.Join(cached, programName()))
	}
	if err != nil {
		return "", errors.New("there is no program 'redlatch' in PATH, none in the folder redlatch of the user's cache, " +
			"and REDLATCH_BINARY is not set")
	}
	return cached, nil
}

func programName() string {
	if runtime.GOOS == "windows" {
		return "redlatch.exe"
	}
	return "redlatch"
}

// cache returns the folder for programs in the user's cache: ~/.cache/redlatch on Linux.
func cache() (string, error) {
	folder, err := os.UserCacheDir()
	return filepath.Join(folder, "redlatch"), err
}

// unpack writes the program to the cache, unless it is there, and returns its path.
func unpack(program []byte) (string, error) {
	folder, err := cache()
	if err != nil {
		return "", fmt.Errorf("redlatch has no folder to be unpacked to: %w", err)
	}
	folder = filepath.Join(folder, fmt.Sprintf("%x", sha256.Sum256(program)))
	path := filepath.Join(folder, programName())
	if known, err := os.Stat(path); err == nil && known.Size() == int64(len(program)) {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("redlatch cannot be unpacked: %w", err)
	}
	// Another process may do the same: each writes a file of its own, and the last name wins.
	file, err := os.CreateTemp(folder, "new-*")
	if err != nil {
		return "", fmt.Errorf("redlatch cannot be unpacked: %w", err)
	}
	_, err = file.Write(program)
	err = errors.Join(err, file.Chmod(0o755), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return "", fmt.Errorf("redlatch cannot be unpacked: %w", err)
	}
	return path, nil
}
