package fallback

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/internal/wsframe"
)

// maxUpBytes returns the most bytes of the body of an up.
func (s *Server) maxUpBytes() int64 {
	return maxLineBytes + maxBatchBytes + min(s.config.MaxMessageBytes(), maxMessageBytes)
}

// up handles messages of a client.
func (s *Server) up(w http.ResponseWriter, req *http.Request) {
	b, status := newBody(w, req, s.maxUpBytes())
	if status == 0 {
		status = s.readUp(req, b)
	}
	answer(w, status)
}

// readUp handles the body of an up, and returns the status of the answer.
func (s *Server) readUp(req *http.Request, b body) (status int) {
	line, arrived, status := b.line()
	if status != 0 {
		return status
	}
	up, err := parseUp(line)
	if err != nil {
		return http.StatusBadRequest
	}
	client := s.config.Client(req)
	b.counts = s.bodies.begin(client, up.secret.digest())
	defer b.counts.end()
	if up.secret.node() == s.node {
		return s.handleUp(up, b.rest)
	}
	owner, status := s.ownerOf(up.secret)
	if status == 0 && !arrived { // it knows whether the connection exists, for which the rest is worth reading
		status = s.forwardUp(req.Context(), client, owner, up.withoutMessages(), nil)
	}
	if status != 0 && status != http.StatusNoContent {
		return status
	}
	messages, status := b.rest()
	if status != 0 {
		return status
	}
	return s.forwardUp(req.Context(), client, owner, line, messages)
}

// handleUp handles an up for a connection of this node, and returns the status of its answer. It calls rest for the
// messages if it handles them, which returns a status with which they are refused, or 0.
func (s *Server) handleUp(up upRequest, rest func() (messages []byte, status int)) int {
	c := s.find(up.secret)
	if c == nil {
		return http.StatusConflict
	}
	c.heard()
	switch {
	case !c.acknowledge(up.Ack, false):
		return http.StatusConflict
	case up.Seq > 0:
		return c.up(up, rest)
	case up.Close != nil:
		c.close(*up.Close)
	}
	return http.StatusNoContent
}

// up writes messages to the pipe once, however often they are sent.
func (c *conn) up(up upRequest, rest func() (messages []byte, status int)) int {
	if !c.acquireTurn() {
		return http.StatusServiceUnavailable
	}
	defer func() { <-c.turn }()
	switch up.Seq {
	case c.lastSeq:
		return http.StatusNoContent
	case c.lastSeq + 1:
	default:
		return http.StatusConflict
	}
	messages, status := rest()
	if status != 0 {
		return status
	}
	// A connection that is closed drops them, as a WebSocket does: its event close says so.
	_ = writeFrames(c, messages, up.Close)
	c.lastSeq = up.Seq
	return http.StatusNoContent
}

// acquireTurn waits until the up before has been handled. It returns false if that takes long, or if a third one
// waits already: the memory of a client's requests is bounded.
func (c *conn) acquireTurn() bool {
	select {
	case c.turn <- struct{}{}:
		return true
	default:
	}
	if c.waiting.Swap(true) {
		return false
	}
	defer c.waiting.Store(false)
	timer := time.NewTimer(turnWait)
	defer timer.Stop()
	select {
	case c.turn <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// pieceBytes of frames are in memory at once, or one longer frame: Config.MaxBodyBytes counts bodies, and
// the frames of short messages are several times as long.
const pieceBytes = 16 << 10

// writeFrames writes the messages of a body, one per line, and a close frame unless closed is nil. Each
// write has whole frames, because a pong may come between two writes. None is empty: for the router, that
// would be a failure.
func writeFrames(w io.Writer, messages []byte, closed *closeData) error {
	var frames []byte
	for line := range bytes.SplitSeq(messages, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		if len(frames) > 0 && len(frames)+len(line) > pieceBytes {
			if _, err := w.Write(frames); err != nil {
				return err
			}
			frames = frames[:0]
		}
		frames = wsframe.AppendFrame(frames, wsframe.Client, wsframe.Text, line)
	}
	if closed != nil {
		frames = wsframe.AppendClose(frames, wsframe.Client, closed.Code, closed.Reason)
	}
	if len(frames) == 0 {
		return nil
	}
	_, err := w.Write(frames)
	return err
}

// close closes the connection, beside an up with messages that may be in progress.
func (c *conn) close(with closeData) {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	c.mu.Unlock()
	if first {
		frame := wsframe.AppendClose(nil, wsframe.Client, with.Code, with.Reason)
		go func() { _, _ = c.Write(frame) }() // waits until the router reads, or closes the pipe
	}
}
