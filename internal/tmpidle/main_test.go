package tmpidle

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/penstock-go/penstock/router"
)

type Ping struct{ A string }

func (Ping) MessageType() string { return "PING" }

type Pong struct{ A string }

func (Pong) MessageType() string { return "PONG" }

func TestIdle(t *testing.T) {
	runtime.MemProfileRate = 1
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m Ping) (Pong, error) { return Pong{m.A}, nil })
	s := httptest.NewServer(r)
	const n = 2000
	var conns []net.Conn
	for range n {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		buf := make([]byte, 1000)
		c.Read(buf)
		conns = append(conns, c)
	}
	time.Sleep(300 * time.Millisecond)
	runtime.GC()
	runtime.GC()
	f, _ := os.Create("/tmp/idle/heap.pb")
	pprof.Lookup("heap").WriteTo(f, 0)
	f.Close()
	_ = context.Background
	runtime.KeepAlive(conns)
	os.Exit(0)
}
