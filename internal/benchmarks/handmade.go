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
	"github.com/go-json-experiment/json"

	"github.com/penstock-go/penstock/internal/envelope"
)

// serveHandmade is the best loop that we can make on the same library: one
// goroutine that reads, decodes, handles and writes; our scanner, our choice of
// JSON, and replies that are held back while more requests wait in the buffer.
// It has no router, no limits, no queue and no protection from slow clients.
func serveHandmade() (http.Handler, func(int)) {
	var conns sync.Map
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &corked{}
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
			s := s.(*corked)
			s.cork()
			for range n {
				check(c.(*websocket.Conn).Write(context.Background(), websocket.MessageText, published))
			}
			check(s.uncork())
		}
	}
}

func handmadeLoop(c *websocket.Conn, s *corked) {
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

// answerScanned is answerTyped with our scanner and our choice of JSON.
func answerScanned(reply, data []byte) ([]byte, error) {
	frame, err := envelope.Parse(data)
	if err != nil {
		return nil, err
	}
	if string(frame.Type) != "SAY" {
		return nil, io.ErrUnexpectedEOF
	}
	var m Say
	if err := json.Unmarshal(frame.Payload, &m); err != nil {
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
	text, err := json.Marshal(said(m))
	if err != nil {
		return nil, err
	}
	reply = append(reply, text...)
	return append(reply, '}'), nil
}

// corked is a connection whose writes wait until it is uncorked.
type corked struct {
	net.Conn
	in    *bufio.Reader
	early []byte // came before the connection was ours

	mu   sync.Mutex
	held bool
	out  []byte
}

func (s *corked) Read(p []byte) (int, error) {
	if len(s.early) > 0 {
		n := copy(p, s.early)
		s.early = s.early[n:]
		return n, nil
	}
	return s.Conn.Read(p)
}

func (s *corked) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held {
		return s.Conn.Write(p)
	}
	s.out = append(s.out, p...)
	if len(s.out) < 16<<10 {
		return len(p), nil
	}
	return len(p), s.flush()
}

func (s *corked) cork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

func (s *corked) uncork() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	return s.flush()
}

func (s *corked) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.Conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

type corkedHijacker struct {
	http.ResponseWriter
	s *corked
}

// Hijack gives the library small buffers over the corked connection, and what net/http
// has read already.
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
