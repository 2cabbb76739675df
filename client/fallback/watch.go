//go:build !js

package fallback

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A watched is the body of a response with the status 101, of whose bytes the attempt learns its
// outcome.
type watched struct {
	io.ReadWriteCloser

	a      *attempt
	frames frameScanner // used by the goroutine that reads
}

// watch begins to watch the body of a response, unless the attempt was given up.
func (a *attempt) watch(resp *http.Response, body io.ReadWriteCloser) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.givenUp {
		return false
	}
	a.opened, a.body = time.Now(), body
	resp.Body = &watched{ReadWriteCloser: body, a: a}
	return true
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(p)
	if !w.frames.done {
		w.frames.scan(p[:n], w.a.receive)
	}
	if err != nil {
		w.lost(err)
	}
	return n, err
}

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.ReadWriteCloser.Write(p)
	if err != nil {
		w.lost(err)
	}
	return n, err
}

// Close implements io.Closer. A connection that the client closes itself has no outcome.
func (w *watched) Close() error {
	w.a.settle()
	defer w.a.cancel()
	return w.ReadWriteCloser.Close()
}

// lost notes that the connection has ended without a close frame.
func (w *watched) lost(cause error) {
	if w.a.settle() {
		w.a.t.failed(w.a, cause)
	}
}

// receive handles a message, or a close frame with a code. It returns false when there is nothing
// more to learn.
func (a *attempt) receive(op byte, code int) bool {
	if op == opClose {
		switch {
		case !a.settle():
		case a.received.Load() || isOfServer(code):
			a.t.works()
		case code != codeNormal && code != codeGoingAway: // those of the client, which the server repeats
			a.t.failed(a, fmt.Errorf("the connection was closed with %d", code))
		}
		return false
	}
	if !a.received.Swap(true) {
		a.t.report(WebSocket, nil)
	}
	a.mu.Lock()
	late := a.settled // after it was taken for a failure
	a.mu.Unlock()
	if late {
		a.t.works()
	}
	return !late
}

// Close codes of RFC 6455, section 7.4.1.
const (
	codeNormal      = 1000
	codeGoingAway   = 1001
	codeUnsupported = 1003
	codeTooBig      = 1009
)

// isOfServer reports whether only a server, and no proxy, closes a connection with a code.
func isOfServer(code int) bool { return code == 1012 || code == 1013 || code >= 4000 }

// Opcodes and bits of RFC 6455, section 5.2.
const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8

	opcodeBits = 0x0f
	lengthBits = 0x7f
)

// A frameScanner finds the first message and the close frame in what a server sends, in pieces of
// any length.
type frameScanner struct {
	done bool   // nothing is looked for any more
	head []byte // of the current frame, as far as it has arrived
	skip uint64 // bytes of the payload that have not arrived
}

// scan calls found with the opcode of each message that begins, and with a close frame and its
// code, until that returns false. A message is found with its first byte, so that a large one is
// found early.
func (s *frameScanner) scan(p []byte, found func(op byte, code int) bool) {
	for len(p) > 0 && !s.done {
		if s.skip > 0 {
			n := min(s.skip, uint64(len(p)))
			s.skip -= n
			p = p[n:]
			continue
		}
		s.head = append(s.head, p[0])
		p = p[1:]
		if len(s.head) < 2 {
			continue
		}
		op, length, begin := s.head[0]&opcodeBits, uint64(s.head[1]&lengthBits), 2
		switch length {
		case 126:
			begin += 2
		case 127:
			begin += 8
		}
		const codeBytes = 2
		need := begin
		if op == opClose && length >= codeBytes {
			need += codeBytes
		}
		if len(s.head) < need {
			continue
		}
		switch length {
		case 126:
			length = uint64(binary.BigEndian.Uint16(s.head[2:]))
		case 127:
			length = binary.BigEndian.Uint64(s.head[2:])
		}
		s.skip = length
		switch op {
		case opText, opBinary:
			s.done = !found(op, 0)
		case opClose:
			code := 0
			if need > begin {
				code = int(binary.BigEndian.Uint16(s.head[begin:]))
			}
			s.done = true
			found(op, code)
		}
		s.head = s.head[:0]
	}
	if s.done {
		s.head = nil
	}
}
