package wsconn

import (
	"compress/flate"
	"io"
	"sync"

	"github.com/penstock-go/penstock/errors"
)

// An inflater reads a message that the client has compressed, RFC 7692, section
// 7.2.2. It is held while the message comes, and takes 45 kB.
type inflater struct {
	flate   io.ReadCloser // a flate.Resetter, too
	source  deflateSource
	streams int // that ended before the message did
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{}
	in.flate = flate.NewReader(&in.source)
	return in
}}

// maxStreams is how many DEFLATE streams a message may consist of. One is what
// there is, more is what the RFC allows, and each costs work without bringing
// any data.
const maxStreams = 16

var (
	errStreams = errors.New("a compressed message of too many streams")
	errInflate = errors.New("a compressed message lacks its end")
)

// inflate returns the text of a message. At most maxBytes of the message
// itself are read.
func inflate(message io.Reader, maxBytes int64) *inflater {
	in := inflaters.Get().(*inflater)
	in.source = deflateSource{message: message, left: maxBytes, buf: newBuffer(1)}
	in.streams = 0
	in.restart()
	return in
}

func (in *inflater) restart() {
	_ = in.flate.(flate.Resetter).Reset(&in.source, nil) // fails never
}

func (in *inflater) release() {
	in.source.buf.Release()
	in.source = deflateSource{}
	inflaters.Put(in)
}

// Read returns io.EOF where the message ends, and only there: a wrapped one is the
// end of the socket.
func (in *inflater) Read(p []byte) (int, error) {
	for {
		n, err := in.flate.Read(p)
		switch {
		case err == io.ErrUnexpectedEOF && in.source.ended(): //nolint:errorlint // as above
			return n, errInflate
		case err != io.EOF || in.source.ended():
			return n, err
		}
		if in.streams++; in.streams > maxStreams {
			return n, errStreams
		}
		in.restart()
		if n > 0 {
			return n, nil
		}
	}
}

// A deflateSource is the message as it travels, and behind it what its sender has
// left out, and an end.
type deflateSource struct {
	message io.Reader // nil once it has ended
	left    int64
	buf     *Buffer
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
			return errTooBig
		}
		switch {
		case err == io.EOF:
			s.message = nil
			s.unread = append(b[:n], deflateTail...)
		case err != nil:
			return err
		default:
			s.unread = b[:n]
		}
	}
	return nil
}

// ReadByte lets the decompressor read no further than a stream's end.
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
