package internal_test

import (
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/simnet"
)

func TestNetwork_DialIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		_, err := p.Dial(t.Context(), "a", "nowhere")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.SetDown("b", true)
		_, err = p.Dial(t.Context(), "a", "b")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.SetDown("b", false)
		client, server := p.dial(t)
		assert.NoError(t, errors.Join(client.Close(), server.Close()))
	})
}

func TestNetwork_DialEndsWithItsContextAndItsListener(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Dial(ctx, "a", "b") // nothing accepts
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, p.Conns("b"), "nothing is left of it")

		refused := make(chan error, 1)
		go func() {
			_, err := p.Dial(t.Context(), "a", "b")
			refused <- err
		}()
		time.Sleep(time.Second)
		require.NoError(t, p.listener.Close())
		require.ErrorIs(t, <-refused, syscall.ECONNREFUSED)
		_, err = p.listener.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = p.Dial(t.Context(), "a", "b")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.listener = p.Listen("b")
		client, server := p.dial(t)
		assert.NoError(t, errors.Join(client.Close(), server.Close()))
	})
}

func TestNetwork_StallHoldsBackDialsAndData(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		_, err := p.client.Write([]byte("x"))
		require.NoError(t, err)
		began := time.Now()
		p.Stall("a", time.Minute)
		_, err = p.server.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)

		p.Stall("b", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Dial(ctx, "a", "b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began = time.Now()
		client, server := p.dial(t)
		assert.GreaterOrEqual(t, time.Since(began), 50*time.Second)
		assert.NoError(t, errors.Join(client.Close(), server.Close()))
	})
}

func TestNetwork_AbandonLosesEverythingWithoutANotice(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Abandon("a")
		_, err := p.client.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, p.client.CloseWrite())
		require.NoError(t, p.server.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = p.server.Read(make([]byte, 1))
		assertTimeout(t, err)
		client, server := p.dial(t) // new connections work
		_, err = client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = server.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.NoError(t, errors.Join(client.Close(), server.Close()))
	})
}

func TestNetwork_CutLetsAPartArrive(t *testing.T) {
	lengths := map[int]bool{}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(seed, simnet.Links{MaxDelay: time.Second, Window: window})
			p := &pair{Network: n, listener: n.Listen("b")}
			p.client, p.server = p.dial(t)
			for _, c := range []byte("0123456789") {
				_, err := p.client.Write([]byte{c})
				require.NoError(t, err)
			}
			p.Cut("b")
			got, err := io.ReadAll(p.server)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			assert.True(t, strings.HasPrefix("0123456789", string(got)), "it has %q", got)
			lengths[len(got)] = true
			_, err = p.client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			assert.NoError(t, errors.Join(p.client.Close(), p.server.Close(), p.listener.Close()))
			assert.Zero(t, n.Conns(""))
		})
	}
	assert.Greater(t, len(lengths), 5, "the cut is at any byte: %v", lengths)
}
