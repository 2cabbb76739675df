package redistest

import (
	"math/rand/v2"
	"time"
)

const (
	host     = "127.0.0.1"
	timeout  = 30 * time.Second // of every poll
	interval = 5 * time.Millisecond
)

// poll calls check until it is done or the timeout ends, and returns its last error. A check that
// is not done must return an error.
func poll(check func() (done bool, err error)) error {
	deadline := time.Now().Add(timeout)
	for {
		done, err := check()
		if done || time.Now().After(deadline) {
			return err
		}
		time.Sleep(interval)
	}
}

// randomPort returns a port that is probably free. It is below the range of ephemeral ports, so
// that no outgoing connection takes it between a Stop and a Restart.
func randomPort() int { return 10_000 + rand.IntN(20_000) }
