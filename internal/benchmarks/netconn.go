package main

import (
	"net"
	"net/http"
	"sync"
)

// serveNetConn is the floor for servers with a goroutine per connection: it reads, answers all
// requests that it has read, and writes once.
func serveNetConn() (http.Handler, func(int)) {
	var conns sync.Map
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrade(w, r)
		if err != nil {
			return
		}
		conns.Store(conn, nil)
		go func() {
			netConnLoop(conn)
			conns.Delete(conn)
			_ = conn.Close()
		}()
	})
	return handler, func(n int) {
		frames := publishedFrame(n)
		for conn := range conns.Range {
			_, err := conn.(net.Conn).Write(frames)
			check(err)
		}
	}
}

func netConnLoop(conn net.Conn) {
	in, out := make([]byte, 4096), []byte(nil)
	buffered := 0
	for {
		n, err := conn.Read(in[buffered:])
		if err != nil {
			return
		}
		buffered += n
		var done int
		if out, done, err = answerFrames(out[:0], in[:buffered]); err != nil {
			return
		}
		buffered = copy(in, in[done:buffered])
		if len(out) == 0 {
			continue
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}
