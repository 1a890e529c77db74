package examples

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"redlatch.dev/locks"
)

// RunOnGPU runs a job on one of four GPUs: the first that is free.
func RunOnGPU(ctx context.Context, l *locks.Locks, command *exec.Cmd) error {
	gpus := l.AnyOf([]string{"gpu:0", "gpu:1", "gpu:2", "gpu:3"}, locks.Options{Wait: time.Hour})
	return gpus.Do(ctx, func(_ context.Context, held *locks.Held) error {
		number := strings.TrimPrefix(held.Key(), "gpu:")
		command.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+number)
		return command.Run()
	})
}
