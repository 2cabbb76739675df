//go:build !unix

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// lookup always fails, so the other functions of this file are never called.
func lookup() error {
	return fmt.Errorf("%s runs only on Unix in tests: %w", program, errors.ErrUnsupported)
}

func startWatchdog(int) (*exec.Cmd, error) { return nil, errors.ErrUnsupported }

func exited(*os.Process) bool { return false }

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
