package wsconn_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// windowed returns options with memory for the windows of n connections.
func windowed(n int64) *wsconn.Options {
	opts := options()
	opts.Deflater = wsconn.NewDeflater(50, n*deflate.MemoryBytes)
	return opts
}

func TestWindows_MemoryIsBoundedAndReturned(t *testing.T) {
	opts := windowed(2)
	addr, conns := listen(t, opts)
	dial := func(offer string) (string, *wsconn.Conn) {
		p := dialPeer(t, addr, false, offer)
		return p.extensions, <-conns
	}
	const offer, kept = "permessage-deflate; client_max_window_bits", "permessage-deflate; client_max_window_bits=11"
	const none = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	answer, first := dial(offer)
	assert.Equal(t, kept, answer)
	answer, c := dial(none)
	defer c.Release()
	assert.Equal(t, none, answer, "a client that wants no window takes no memory")
	answer, c = dial("permessage-deflate")
	defer c.Release()
	assert.Equal(t, "permessage-deflate; client_no_context_takeover", answer, "the window of this client cannot be limited")
	answer, c = dial(offer)
	defer c.Release()
	assert.Equal(t, none, answer, "the memory is used up")
	first.Release()
	first.Release()
	answer, c = dial(offer)
	defer c.Release()
	assert.Equal(t, kept, answer, "the memory of a connection that has ended")
	answer, c = dial(offer)
	defer c.Release()
	assert.Equal(t, none, answer)
}

// TestWindows_FailedHandshakesReturnMemory has writers that cannot be upgraded, and a request that is no handshake.
func TestWindows_FailedHandshakesReturnMemory(t *testing.T) {
	opts := windowed(1)
	for _, fails := range []func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
			return opaqueWriter{w}, r
		},
		func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
			return brokenWriter{w}, r
		},
		func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
			r.Header.Del("Sec-WebSocket-Key")
			return w, r
		},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Extensions": "permessage-deflate",
		} {
			r.Header.Set(name, value)
		}
		w, r := fails(httptest.NewRecorder(), r)
		_, err := wsconn.Accept(w, r, "", opts, newHandler())
		require.Error(t, err)
	}
	addr, conns := listen(t, opts)
	p := dialPeer(t, addr, false, "permessage-deflate")
	defer (<-conns).Release()
	assert.NotContains(t, p.extensions, "server_no_context_takeover")
}

// TestWindows_AreAllocatedWhenUsed sends messages that are not compressed before one that is.
func TestWindows_AreAllocatedWhenUsed(t *testing.T) {
	addr, conns := listen(t, windowed(1))
	p := dialPeer(t, addr, false, "permessage-deflate; client_max_window_bits")
	c := <-conns
	defer c.Release()
	exchange := func(first byte, payload, message string) {
		_, err := p.Write(clientFrame(first, payload))
		require.NoError(t, err)
		received, err := next(c)
		require.NoError(t, err)
		f := wsconn.NewFrame()
		f.WriteString(string(received.Bytes))
		f.Seal()
		require.NoError(t, c.Queue(f))
		c.Flush()
		got, err := p.read()
		require.NoError(t, err)
		require.Equal(t, message, got.payload)
	}
	exchange(fin|text, "short", "short")
	assert.False(t, wsconn.UsesWindows(c))
	message := strings.Repeat("message ", 10)
	exchange(fin|rsv1|text, deflated(message), message)
	assert.True(t, wsconn.UsesWindows(c))
}

// TestWindows_ContainWhatIsSentToMany sends messages to two connections, and to one of them messages that repeat these.
func TestWindows_ContainWhatIsSentToMany(t *testing.T) {
	opts := windowed(2)
	addr, conns := listen(t, opts)
	var peers []*peer
	var all []*wsconn.Conn
	for range 2 {
		peers = append(peers, dialPeer(t, addr, false, "permessage-deflate"))
		c := <-conns
		defer c.Release()
		all = append(all, c)
	}
	read := func(p *peer, message string) {
		got, err := p.read()
		require.NoError(t, err)
		require.Equal(t, message, got.payload)
	}
	random := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // the same in each run
	for n := range 100 {
		text := make([]byte, 50)
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		message := fmt.Sprintf(`{"type":"SAID","payload":{"text":"%x%x","n":%d}}`, text, text, n)
		f := wsconn.NewFrame()
		f.WriteString(message)
		f.Seal()
		for _, c := range all {
			f.Retain()
			require.NoError(t, c.Queue(f))
			c.Flush()
		}
		f.Release()
		for _, p := range peers {
			read(p, message)
		}
		before := peers[0].received
		require.NoError(t, send(all[0], message))
		read(peers[0], message)
		require.Less(t, peers[0].received-before, 40, "bytes of a message that repeats an earlier one")
	}
}

// TestWindows_TakeInMessagesThatGetNoShorter sends messages that can only be shortened by references to others.
func TestWindows_TakeInMessagesThatGetNoShorter(t *testing.T) {
	addr, conns := listen(t, windowed(1))
	p := dialPeer(t, addr, false, "permessage-deflate")
	c := <-conns
	defer c.Release()
	random := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // the same in each run
	for n := range 50 {
		message := fmt.Sprintf(`{"type":"SAID","payload":{"text":"%016x"}}`, random.Uint64())
		before := p.received
		require.NoError(t, send(c, message))
		got, err := p.read()
		require.NoError(t, err)
		require.Equal(t, message, got.payload)
		if n > 0 {
			assert.Less(t, p.received-before, len(message)/2)
		}
	}
}

// TestWindows_MessagesThatAreNotWritten has a client that reads nothing until frames were dropped and replaced.
func TestWindows_MessagesThatAreNotWritten(t *testing.T) {
	opts := windowed(1)
	opts.SlowConsumer, opts.QueueMessages = wsconn.Conflate, 8
	addr, conns := listen(t, opts)
	p := dialPeer(t, addr, false, "permessage-deflate")
	c := <-conns
	defer c.Release()
	wsconn.BlockWriter(c)
	for n := range 100 {
		f := wsconn.NewFrame()
		f.WriteString(fmt.Sprintf(`{"type":"STATE","payload":{"key":"%d","value":%d,"text":"a value that is replaced"}}`, n%3, n))
		f.Droppable(fmt.Sprint(n % 3))
		f.Seal()
		_ = c.Queue(f)
	}
	wsconn.UnblockWriter(c)
	c.Flush()
	require.NoError(t, send(c, strings.Repeat("the last message ", 10)))
	for n := 0; ; n++ {
		got, err := p.read()
		require.NoError(t, err)
		if strings.HasPrefix(got.payload, "the last") {
			assert.Equal(t, 3, n)
			return
		}
		require.Contains(t, got.payload, `"text":"a value that is replaced"}}`)
	}
}
