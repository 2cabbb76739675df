package router_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A rawReader reads the frames of a server, which are not masked, without allocating.
type rawReader struct {
	net.Conn

	buf *bufio.Reader
}

// dialStream returns a client that has sent the handshake. Its receive buffer has a fixed size: one
// that Linux grows holds 32 MiB, which is more than a test sends between two pauses.
func dialStream(t testing.TB, server *httptest.Server) *rawReader {
	conn := dialTCP(t, server)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(256<<10))
	r := &rawReader{conn, bufio.NewReaderSize(conn, 64<<10)}
	resp, err := http.ReadResponse(r.buf, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	return r
}

// next returns the next message, which is valid until the next call.
func (r *rawReader) next() ([]byte, error) {
	header, err := r.buf.Peek(4)
	if err != nil {
		return nil, err
	}
	if header[0] != 0x81 {
		return nil, fmt.Errorf("received the opcode %d", header[0])
	}
	start, size := 2, int(header[1])
	if size == 126 {
		start, size = 4, int(binary.BigEndian.Uint16(header[2:]))
	}
	frame, err := r.buf.Peek(start + size)
	if err != nil {
		return nil, err
	}
	_, err = r.buf.Discard(len(frame))
	return frame[start:], err
}

// send sends a message of at most 125 bytes.
func (r *rawReader) send(text string) error {
	_, err := r.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...))
	return err
}

// itemOf returns the number in a message of Count, or -1.
func itemOf(text []byte) int {
	_, rest, ok := bytes.Cut(text, []byte(`"data":`))
	if !ok {
		return -1
	}
	digits, _, _ := bytes.Cut(rest, []byte(`,`))
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		return -1
	}
	return n
}

// liveBytes returns the bytes of the heap and of the stacks that are in use.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // frees what sync.Pool has kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}

func TestStream_TenThousandOpenStreamsOfOneConnection(t *testing.T) {
	const maxBytes = 16 << 10
	streams := testscale.Tiers(1000, 2000, 10_000)
	s, _ := newStreamRouter(router.Options{Limits: withoutRates(router.Limits{Concurrency: streams})}, nil)
	server := httptest.NewServer(s)
	defer server.Close()
	client := dialStream(t, server)
	require.Eventually(t, func() bool { return len(collect(s.Router)) == 1 }, time.Minute, time.Millisecond)
	goroutines, before := runtime.NumGoroutine(), liveBytes()
	for n := range streams {
		require.NoError(t, client.send(fmt.Sprintf(`{"type":"COUNT","meta":{"correlationId":"%d","credit":1},"payload":{}}`, n)))
	}
	for range streams { // one item each; the streams now wait for credits
		text, err := client.next()
		require.NoError(t, err)
		require.Zero(t, itemOf(text), "%s", text)
	}
	each := (liveBytes() - before) / int64(streams)
	t.Logf("%d bytes per open stream", each)
	assert.Less(t, each, int64(maxBytes))
	aborted := make(chan struct{})
	go func() {
		defer close(aborted)
		for n := range streams {
			assert.NoError(t, client.send(fmt.Sprintf(`{"type":"$ws:abort","meta":{"correlationId":"%d"}}`, n)))
		}
	}()
	answered := map[string]bool{}
	for range streams {
		text, err := client.next()
		require.NoError(t, err)
		require.Contains(t, string(text), `"code":"CANCELLED"`)
		_, id, _ := bytes.Cut(text, []byte(`"correlationId":"`))
		id, _, _ = bytes.Cut(id, []byte(`"`))
		require.False(t, answered[string(id)], "a second answer")
		answered[string(id)] = true
	}
	<-aborted
	goroutines++ // Eventually has one
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, time.Minute, 10*time.Millisecond, "no goroutine is left")
	assert.Empty(t, s.failures.all())
	assert.Len(t, s.events.all(), 4*streams)
}

// TestStream_ItemAllocatesNoMoreThanSendWait compares the allocations of the whole process, which
// sends nothing else.
func TestStream_ItemAllocatesNoMoreThanSendWait(t *testing.T) {
	items := testscale.Tiers(10_000, 20_000, 50_000)
	measure := func(register func(*router.Router)) float64 {
		r := router.New(discardLogs(router.Options{}))
		register(r)
		server := httptest.NewServer(r)
		defer server.Close()
		client := dialStream(t, server)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, client.send(fmt.Sprintf(`{"type":"COUNT","meta":{"correlationId":"b7c1"},"payload":{"to":%d}}`, items)))
		for range items + 1 {
			_, err := client.next()
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(items)
	}
	stream, sendWait := measure(streamUpdates), measure(sendUpdates)
	t.Logf("allocations: %.2f per item of a stream, %.2f per SendWait", stream, sendWait)
	assert.Less(t, stream, sendWait+0.5)
}

func TestProgress_DoesNothingAfterAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		var kept *router.Context
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) { kept = ctx; return Echoed(m), nil })
		router.On(r, func(ctx *router.Context, _ Nothing) error {
			assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(ctx.Progress(1)))
			assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(ctx.ProgressWait(1)))
			return nil
		})
		conn := routertest.Dial(t, r)
		conn.Send(Nothing{})
		routertest.Call[Echoed](conn, Echo{1})
		synctest.Wait()
		require.NoError(t, kept.Progress(1))
		require.ErrorIs(t, kept.ProgressWait(1), context.Canceled)
		synctest.Wait()
		assert.Zero(t, conn.Pending())
	})
}
