package redistest

import "time"

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
