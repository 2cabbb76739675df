package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A site is the program on a port that it keeps when it is started again.
type site struct {
	t     *testing.T
	addr  string
	flags []string
	stop  func()
}

// open starts the program on a free port, below those that the system gives to
// outgoing connections: nobody takes it while the program is down.
func open(t *testing.T, flags ...string) *site {
	s := &site{t: t, flags: flags}
	t.Cleanup(func() { s.stop() })
	for range 10 {
		s.addr = fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(10_000))
		if s.start() {
			return s
		}
	}
	t.Fatal("there is no free port")
	return nil
}

func (s *site) url() string { return "http://" + s.addr }

// start returns false if the program could not start.
func (s *site) start() bool {
	ctx, interrupt := context.WithCancel(context.WithoutCancel(s.t.Context()))
	stdout := &output{make(chan string, 10)}
	exit := make(chan int, 1)
	go func() { exit <- run(ctx, append(s.flags, "-addr="+s.addr), stdout, io.Discard) }()
	s.stop = func() {
		s.stop = func() {}
		interrupt()
		assert.Zero(s.t, <-exit)
	}
	select {
	case <-stdout.lines:
		return true
	case <-exit:
		interrupt()
		s.stop = func() {}
		return false
	}
}
