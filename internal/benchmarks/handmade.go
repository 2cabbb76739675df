package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/wire"
)

// serveHandmade is the fastest loop that we could write on coder/websocket. One goroutine reads,
// decodes, handles and writes. It uses Penstock's scanner and JSON package, and delays replies while
// more requests are in the read buffer. It has no router, limits, send queue or protection against slow
// clients.
func serveHandmade() (http.Handler, func(int)) {
	var conns sync.Map
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &corkedConn{}
		c, err := websocket.Accept(&corkedHijacker{w, s}, r, nil)
		if err != nil {
			return
		}
		conns.Store(c, s)
		go func() {
			defer conns.Delete(c)
			defer c.CloseNow()
			handmadeLoop(c, s)
		}()
	})
	return handler, func(n int) {
		for c, s := range conns.Range {
			s := s.(*corkedConn)
			s.cork()
			for range n {
				check(c.(*websocket.Conn).Write(context.Background(), websocket.MessageText, published))
			}
			check(s.uncork())
		}
	}
}

func handmadeLoop(c *websocket.Conn, s *corkedConn) {
	ctx := context.Background()
	buffer, reply := make([]byte, 0, 1024), make([]byte, 0, 512)
	for {
		if s.in.Buffered() == 0 && s.uncork() != nil {
			return
		}
		_, r, err := c.Reader(ctx)
		if err != nil {
			return
		}
		s.cork()
		if buffer, err = readAll(buffer[:0], r); err != nil {
			return
		}
		if reply, err = answerScanned(reply[:0], buffer); err != nil {
			return
		}
		if c.Write(ctx, websocket.MessageText, reply) != nil {
			return
		}
	}
}

func readAll(p []byte, r io.Reader) ([]byte, error) {
	for {
		if len(p) == cap(p) {
			p = append(p, 0)[:len(p)]
		}
		n, err := r.Read(p[len(p):cap(p)])
		p = p[:len(p)+n]
		if err == io.EOF {
			return p, nil
		}
		if err != nil {
			return p, err
		}
	}
}

// answerScanned is answerTyped with Penstock's scanner and JSON package.
func answerScanned(reply, data []byte) ([]byte, error) {
	frame, err := wire.Parse(data)
	if err != nil {
		return nil, err
	}
	if string(frame.Type) != "SAY" {
		return nil, io.ErrUnexpectedEOF
	}
	var m Say
	if err := jsonv2.Unmarshal(frame.Payload, &m); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	reply = append(reply, `{"type":"SAID","meta":{"timestamp":`...)
	reply = strconv.AppendInt(reply, time.Now().UnixMilli(), 10)
	reply = append(reply, `,"correlationId":"`...)
	reply = append(reply, frame.CorrelationID...)
	reply = append(reply, `"},"payload":`...)
	text, err := jsonv2.Marshal(said(m))
	if err != nil {
		return nil, err
	}
	reply = append(reply, text...)
	return append(reply, '}'), nil
}

// A corkedConn is a connection that buffers its writes between cork and uncork, as TCP_CORK does.
type corkedConn struct {
	net.Conn
	in    *bufio.Reader
	early []byte // bytes that net/http read before Hijack

	mu     sync.Mutex // guards everything below
	corked bool
	out    []byte
}

func (s *corkedConn) Read(p []byte) (int, error) {
	if len(s.early) > 0 {
		n := copy(p, s.early)
		s.early = s.early[n:]
		return n, nil
	}
	return s.Conn.Read(p)
}

func (s *corkedConn) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.corked {
		return s.Conn.Write(p)
	}
	s.out = append(s.out, p...)
	if len(s.out) < 16<<10 {
		return len(p), nil
	}
	return len(p), s.flush()
}

func (s *corkedConn) cork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.corked = true
}

func (s *corkedConn) uncork() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.corked = false
	return s.flush()
}

func (s *corkedConn) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.Conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

type corkedHijacker struct {
	http.ResponseWriter
	s *corkedConn
}

// Hijack returns the corked connection with small buffers. The bytes that net/http has already read
// come first.
func (h *corkedHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.s.Conn = conn
	early, err := rw.Peek(rw.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	h.s.early = bytes.Clone(early)
	h.s.in = bufio.NewReaderSize(h.s, 4096)
	return h.s, bufio.NewReadWriter(h.s.in, bufio.NewWriterSize(h.s, 1024)), nil
}
