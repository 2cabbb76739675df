package redistest

import (
	"math/rand/v2"
	"time"
)

const (
	host     = "127.0.0.1"
	patience = 30 * time.Second // for anything that this package waits for
	interval = 5 * time.Millisecond
)

// poll calls check until it is done or patience ends, and returns its last error.
// A check that is not done must say why.
func poll(check func() (done bool, err error)) error {
	deadline := time.Now().Add(patience)
	for {
		done, err := check()
		if done || time.Now().After(deadline) {
			return err
		}
		time.Sleep(interval)
	}
}

// randomPort returns a port that is probably free. It is below those from which
// systems choose for outgoing connections, so that it stays free between a Stop
// and a Restart.
func randomPort() int { return 10_000 + rand.IntN(20_000) }
