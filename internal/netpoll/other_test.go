//go:build (!linux || 386 || s390x) && !simulatedpoll

package netpoll_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/netpoll"
)

func TestPoller_AttachFailsOnThisSystem(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	assert.ErrorIs(t, netpoll.NewPoller().Attach(conn, nil, nil), errors.ErrUnsupported)
}
