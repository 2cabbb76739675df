package internal_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/freeport"
)

func TestPick_NeverTwiceAndBelowOutgoingConnections(t *testing.T) {
	seen := map[int]bool{}
	for range 500 {
		port := freeport.Pick()
		assert.False(t, seen[port], "port %d was picked twice", port)
		assert.True(t, 10_000 <= port && port < 30_000, "port %d may be the one of an outgoing connection", port)
		seen[port] = true
	}
}

func TestAddress_StaysFreeForServerThatStartsAgain(t *testing.T) {
	address := freeport.Address()
	for range 3 {
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}
