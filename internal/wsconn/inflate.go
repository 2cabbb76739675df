package wsconn

import (
	"compress/flate"
	"io"
	"sync"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// An inflater decompresses a message (RFC 7692, section 7.2.2). It takes 45 kB, and is
// used only while the message arrives.
type inflater struct {
	flate   io.ReadCloser // also a flate.Resetter
	source  deflateSource
	streams int // that ended before the message did
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{}
	in.flate = flate.NewReader(&in.source)
	return in
}}

// maxStreams bounds the DEFLATE streams of a message. Senders use one; the RFC allows
// more, and each costs work without bringing any data.
const maxStreams = 16

// inflate decompresses a message. It reads at most maxBytes of the compressed message.
func inflate(message io.Reader, maxBytes int64) *inflater {
	in := inflaters.Get().(*inflater)
	in.source = deflateSource{message: message, left: maxBytes, buf: netpoll.NewBuffer(1)}
	in.streams = 0
	in.restart()
	return in
}

func (in *inflater) restart() {
	_ = in.flate.(flate.Resetter).Reset(&in.source, nil) // never fails
}

func (in *inflater) release() {
	in.source.buf.Release()
	in.source = deflateSource{}
	inflaters.Put(in)
}

// Read returns io.EOF at the end of the message and nowhere else.
func (in *inflater) Read(p []byte) (int, error) {
	for {
		n, err := in.flate.Read(p)
		switch {
		case err == nil || err == io.EOF && in.source.ended():
			return n, err
		case in.source.err != nil:
			return n, in.source.err
		case err != io.EOF:
			return n, protocolError("invalid compressed data")
		}
		if in.streams++; in.streams > maxStreams {
			return n, protocolError("a compressed message of too many streams")
		}
		in.restart()
		if n > 0 {
			return n, nil
		}
	}
}

// A deflateSource is the compressed message, followed by the bytes that the sender has
// omitted (RFC 7692, section 7.2.1) and by a final block.
type deflateSource struct {
	message io.Reader // nil once it has ended
	err     error     // of message
	left    int64
	buf     *netpoll.Buffer
	unread  []byte
}

const deflateTail = flushTail + "\x01\x00\x00\xff\xff"

func (s *deflateSource) ended() bool { return s.message == nil && len(s.unread) == 0 }

func (s *deflateSource) fill() error {
	for len(s.unread) == 0 {
		if s.message == nil {
			return io.EOF
		}
		b := s.buf.Bytes[:cap(s.buf.Bytes)-len(deflateTail)]
		n, err := s.message.Read(b)
		if s.left -= int64(n); s.left < 0 {
			s.err = errTooBig
			return s.err
		}
		switch {
		case err == io.EOF:
			s.message = nil
			s.unread = append(b[:n], deflateTail...)
		case err != nil:
			s.err = err
			return err
		default:
			s.unread = b[:n]
		}
	}
	return nil
}

// ReadByte keeps the decompressor from reading beyond the end of a stream.
func (s *deflateSource) ReadByte() (byte, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	b := s.unread[0]
	s.unread = s.unread[1:]
	return b, nil
}

func (s *deflateSource) Read(p []byte) (int, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}
