package wsconn

import (
	"bufio"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/penstock-go/penstock/internal/deflate"
)

// An inflater decompresses a message (RFC 7692, section 7.2.2). It takes 41 kB, and is
// used only while the message arrives.
type inflater struct {
	flate   io.ReadCloser // also a flate.Resetter
	input   *bufio.Reader // of source; keeps what follows the end of a stream
	source  deflateSource
	streams int             // that ended before the message did
	window  *deflate.Window // of earlier messages and of what has been read of this one; nil if none is kept
}

var inflaters = sync.Pool{New: func() any {
	in := &inflater{}
	in.input = bufio.NewReaderSize(&in.source, inflateInputBytes)
	in.flate = flate.NewReader(in.input)
	return in
}}

// inflateInputBytes is how much of a compressed message is read at once.
const inflateInputBytes = 4 << 10

// maxStreams bounds the DEFLATE streams of a message. Senders use one; the RFC allows
// more, and each costs work without bringing any data.
const maxStreams = 16

// inflate decompresses a message, which may refer to a window unless that is nil. It reads at most maxBytes of the
// compressed message.
func inflate(message io.Reader, maxBytes int64, w *deflate.Window) *inflater {
	in := inflaters.Get().(*inflater)
	in.source = deflateSource{message: message, left: maxBytes, tail: deflateTail}
	in.input.Reset(&in.source)
	in.streams, in.window = 0, w
	in.restart()
	return in
}

func (in *inflater) restart() {
	_ = in.flate.(flate.Resetter).Reset(in.input, in.window.Text()) // copies the text, and never fails
}

func (in *inflater) release() {
	in.source, in.window = deflateSource{}, nil
	inflaters.Put(in)
}

// Read returns io.EOF at the end of the message and nowhere else.
func (in *inflater) Read(p []byte) (int, error) {
	for {
		n, err := in.flate.Read(p)
		if in.window != nil {
			in.window.Add(p[:n])
		}
		switch {
		case err == nil || err == io.EOF && in.ended():
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

// ended reports whether the decompressor has read the whole message.
func (in *inflater) ended() bool { return in.source.tail == "" && in.input.Buffered() == 0 }

// A deflateSource is the compressed message, followed by the bytes that the sender has
// omitted (RFC 7692, section 7.2.1) and by a final block.
type deflateSource struct {
	message io.Reader // nil once it has ended
	err     error     // of message
	left    int64
	tail    string // what is left of deflateTail
}

const deflateTail = flushTail + "\x01\x00\x00\xff\xff"

func (s *deflateSource) Read(p []byte) (n int, err error) {
	if s.message != nil {
		n, err = s.message.Read(p)
		switch s.left -= int64(n); {
		case s.left < 0:
			s.err = ErrTooBig
			return 0, s.err
		case err == io.EOF:
			s.message = nil
		case err != nil:
			s.err = err
			return 0, err
		default:
			return n, nil
		}
	}
	if n == 0 && s.tail == "" {
		return 0, io.EOF
	}
	added := copy(p[n:], s.tail)
	s.tail = s.tail[added:]
	return n + added, nil
}
