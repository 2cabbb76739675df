//go:build !unix

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// find refuses every system without the signals that the servers need, so that
// the other functions here are never called.
func find() error {
	return fmt.Errorf("%s runs in tests on Unix only: %w", program, errors.ErrUnsupported)
}

func guard(int) (*exec.Cmd, error) { return nil, errors.ErrUnsupported }

func exited(*os.Process) bool { return false }

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
