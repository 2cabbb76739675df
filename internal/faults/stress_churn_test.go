//go:build linux

package faults_test

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// churn opens and closes files and sockets until stop is called, so that the descriptor of a
// closed connection soon belongs to something else. It also starts processes.
func churn() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	run := func(pause time.Duration, f func()) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(pause):
					f()
				}
			}
		})
	}
	run(100*time.Microsecond, func() {
		if f, err := os.Open(os.DevNull); err == nil {
			_ = f.Close()
		}
		if pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err == nil {
			_, _ = syscall.Write(pair[0], []byte("not for a connection"))
			_ = syscall.Close(pair[0])
			_ = syscall.Close(pair[1])
		}
	})
	run(5*time.Millisecond, func() { _ = exec.Command("/bin/true").Run() })
	return func() { close(done); wg.Wait() }
}
