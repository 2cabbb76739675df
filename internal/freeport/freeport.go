// Package freeport chooses ports for the servers of tests that cannot listen at port 0: programs
// that receive their port as an argument, and servers that restart at the same address.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below those that Linux, which begins at 32768, and other systems give to outgoing
// connections: such a connection would take a port that was free a moment ago.
const (
	first = 10_000
	ports = 20_000
)

// attempts bounds the search where nothing can listen.
const attempts = 1_000

//nolint:gochecknoglobals // a port is picked once per process
var (
	mu     sync.Mutex
	picked = map[int]bool{} // guarded by mu
)

// Pick returns a port of 127.0.0.1 at which nothing listens and that this process has not picked
// before. Another process may still take it: a caller that can try again should. Pick panics if it
// finds no free port.
func Pick() int {
	mu.Lock()
	defer mu.Unlock()
	var err error
	for range attempts {
		port := first + rand.IntN(ports)
		if picked[port] {
			continue
		}
		if err = tryListen(port); err == nil {
			picked[port] = true
			return port
		}
	}
	panic(fmt.Sprintf("freeport: no port of 127.0.0.1 is free after %d attempts: %v", attempts, err))
}

// Address returns an address of 127.0.0.1 with a port that [Pick] returned.
func Address() string { return address(Pick()) }

func tryListen(port int) error {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
