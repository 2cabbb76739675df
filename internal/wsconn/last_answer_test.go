package wsconn_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testcert"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A heldServer echoes messages after start has been closed, and each message when the channel answer has
// been closed.
type heldServer struct {
	addr          string
	conns         chan *wsconn.Conn
	start, answer chan struct{}
}

func serveHeld(t *testing.T, secure, polled bool) *heldServer {
	s := &heldServer{conns: make(chan *wsconn.Conn, 1), start: make(chan struct{}), answer: make(chan struct{})}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &inlineHandler{noopHandler: newHandler(), ended: func() {}}
		h.answer = func(m wsconn.Message) string {
			<-s.answer
			return string(m.Bytes)
		}
		var err error
		if h.conn, err = wsconn.Accept(w, r, "", options(), h); !assert.NoError(t, err) {
			return
		}
		s.conns <- h.conn
		go func() {
			<-s.start
			h.Serve()
		}()
	}))
	if !polled { // it is read as on systems without epoll
		server.Listener = wrappingListener{server.Listener, func(c net.Conn) net.Conn { return hidden{c} }}
	}
	if secure {
		server.TLS = testcert.ServerConfig()
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	s.addr = server.Listener.Addr().String()
	return s
}

func dialTCP(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

// A halfClient is a client that can end its direction alone.
type halfClient struct {
	tcp  *recordingConn
	conn interface {
		net.Conn
		CloseWrite() error
	}
	r *bufio.Reader
}

// A recordingConn keeps what it has received.
type recordingConn struct {
	*net.TCPConn

	received []byte
}

func (c *recordingConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.received = append(c.received, p[:n]...)
	return n, err
}

func dialHalf(t *testing.T, addr string, secure bool) *halfClient {
	tcp := &recordingConn{TCPConn: dialTCP(t, addr).(*net.TCPConn)}
	c := &halfClient{tcp: tcp, conn: tcp}
	if secure { // TLS 1.3 encrypts the types of records
		c.conn = tls.Client(tcp, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	}
	_, err := io.WriteString(c.conn, handshake)
	require.NoError(t, err)
	c.r = bufio.NewReader(c.conn)
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return c
}

// sendAndEnd sends bytes and then ends the direction, with a close_notify if the connection is secure.
func (c *halfClient) sendAndEnd(t *testing.T, p []byte) {
	t.Helper()
	_, err := c.conn.Write(p)
	require.NoError(t, err)
	require.NoError(t, c.conn.CloseWrite())
	_ = c.tcp.CloseWrite()
}

// lastRecord returns the type of the last TLS record that was received.
func (c *halfClient) lastRecord() (kind byte) {
	for rest := c.tcp.received; len(rest) >= 5; rest = rest[min(len(rest), 5+int(binary.BigEndian.Uint16(rest[3:]))):] {
		kind = rest[0]
	}
	return kind
}

// TestConn_LastAnswerArrives has clients that end their direction, or send more, before the server has read
// what it answers: with an event loop and without.
func TestConn_LastAnswerArrives(t *testing.T) {
	const closeFrame, recordOfAlert = "\x88\x02\x03\xe8", 21
	clientClose := clientFrame(fin|closing, "\x03\xe8")
	for name, test := range map[string]struct {
		begin  func(*wsconn.Conn)
		sends  []byte
		stays  bool // the client does not end its direction
		want   string
		notify bool // the server ends its direction of TLS with close_notify
	}{
		"close":                            {sends: clientClose, stays: true, want: closeFrame, notify: true},
		"close, then the end":              {sends: clientClose, want: closeFrame, notify: true},
		"close, then more and the end":     {sends: append(clientClose, strings.Repeat("x", 30_000)...), want: closeFrame, notify: true},
		"close of the server, and the end": {begin: func(c *wsconn.Conn) { c.Close(1000, "") }, sends: clientClose, want: closeFrame, notify: true},
		"message, then the end":            {sends: clientFrame(fin|text, "hello"), want: "\x81\x05hello"},
		"violation, then the end":          {sends: clientFrame(fin|0x3, ""), want: "\x88\x13\x03\xeaa reserved opcode", notify: true},
	} {
		for transport := range 4 {
			secure, polled := transport&1 != 0, transport&2 != 0
			t.Run(name+[]string{"/TCP", "/TLS", "/TCP in a loop", "/TLS in a loop"}[transport], func(t *testing.T) {
				s := serveHeld(t, secure, polled)
				client := dialHalf(t, s.addr, secure)
				if c := <-s.conns; test.begin != nil {
					test.begin(c)
				}
				if test.stays {
					_, err := client.conn.Write(test.sends)
					require.NoError(t, err)
				} else {
					client.sendAndEnd(t, test.sends)
				}
				close(s.start)
				close(s.answer)
				got, err := io.ReadAll(client.r)
				require.NoError(t, err)
				assert.Equal(t, test.want, string(got))
				if secure && test.notify {
					assert.EqualValues(t, recordOfAlert, client.lastRecord())
				}
			})
		}
	}
}
