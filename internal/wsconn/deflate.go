package wsconn

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/flate"
)

// A Deflater compresses outgoing messages with permessage-deflate (RFC 7692) and lets
// clients compress theirs. No window is kept from one message to the next, so that an
// idle connection holds nothing, and a message to many is compressed once. It serves
// any number of connections.
type Deflater struct {
	minBytes int

	// writers holds the compressors that are not in use: one per processor, because each takes 0.8 MB.
	// A nil element, which only tests add, has not been created yet.
	writers chan *flate.Writer
	count   atomic.Int32 // with those in use
}

// NewDeflater returns a deflater that does not compress messages shorter than minBytes.
func NewDeflater(minBytes int) *Deflater {
	return &Deflater{minBytes: minBytes, writers: make(chan *flate.Writer, max(runtime.NumCPU(), runtime.GOMAXPROCS(0)))}
}

// writer returns a compressor that is not in use, or nil if one must be created. It waits while there
// is one per processor and all are in use. The caller must put it back into d.writers.
func (d *Deflater) writer() *flate.Writer {
	select {
	case w := <-d.writers:
		return w
	default:
	}
	n := d.count.Load()
	if int(n) < min(runtime.GOMAXPROCS(0), cap(d.writers)) && d.count.CompareAndSwap(n, n+1) {
		return nil
	}
	return <-d.writers
}

// A deflatedFrame is the compressed form of a frame, created when the first connection
// needs it.
type deflatedFrame struct {
	mu    sync.Mutex
	tried bool
	buf   []byte // as in Frame; empty if the compressed form is not shorter
	start int
}

func (f *deflatedFrame) reset() {
	if cap(f.buf) > maxPooledFrameBytes {
		f.buf = nil
	}
	f.tried, f.buf = false, f.buf[:0]
}

// bytes returns a sealed frame as it is transmitted to a peer that inflates.
func (d *Deflater) bytes(f *Frame) []byte {
	if f.control() || len(f.Text()) < d.minBytes {
		return f.bytes()
	}
	f.deflated.mu.Lock()
	defer f.deflated.mu.Unlock()
	if !f.deflated.tried {
		f.deflated.tried = true
		d.deflate(&f.deflated, f.buf[f.start], f.Text())
	}
	if len(f.deflated.buf) == 0 {
		return f.bytes()
	}
	return f.deflated.buf[f.deflated.start:]
}

// deflate implements RFC 7692, section 7.2.1. first is the first byte of the uncompressed frame.
func (d *Deflater) deflate(f *deflatedFrame, first byte, message []byte) {
	f.buf = append(f.buf[:0], make([]byte, maxHeaderBytes)...)
	w := d.writer()
	if w == nil {
		w, _ = flate.NewWriter(f, flate.BestSpeed) // the level is right
	} else {
		w.Reset(f)
	}
	_, _ = w.Write(message) // into memory
	_ = w.Flush()
	d.writers <- w
	f.buf = f.buf[:len(f.buf)-len(flushTail)]
	if len(f.buf)-maxHeaderBytes >= len(message) {
		f.buf = f.buf[:0]
		return
	}
	f.start = putHeader(f.buf, first|rsv1)
}

// Write receives the output of the compressor.
func (f *deflatedFrame) Write(p []byte) (int, error) {
	f.buf = append(f.buf, p...)
	return len(p), nil
}

var _ io.Writer = (*deflatedFrame)(nil)

// flushTail ends a flush and is not transmitted.
const flushTail = "\x00\x00\xff\xff"

// deflateAnswer accepts the first offer of permessage-deflate that the server can meet
// (RFC 7692, section 7.1). The answer is "" if there is none. ok is false if the header
// is malformed; the handshake must then fail (RFC 6455, section 9.1).
func deflateAnswer(h http.Header) (answer string, ok bool) {
	offers, ok := parseExtensions(strings.Join(h.Values("Sec-WebSocket-Extensions"), ","))
	if !ok {
		return "", false
	}
	for _, offer := range offers {
		if offer.name != "permessage-deflate" {
			continue
		}
		if answer, ok := deflateParams(offer.params); ok {
			return "permessage-deflate; server_no_context_takeover; client_no_context_takeover" + answer, true
		}
	}
	return "", true
}

// deflateParams returns what the answer to an offer with these parameters must contain.
func deflateParams(params []extensionParam) (answer string, ok bool) {
	seen := map[string]bool{}
	for _, p := range params {
		if seen[p.name] {
			return "", false
		}
		seen[p.name] = true
		switch p.name {
		case "server_no_context_takeover", "client_no_context_takeover":
			if p.value != "" {
				return "", false
			}
		case "client_max_window_bits": // our window is the largest, so we can read any
			if p.value != "" && !isWindowBits(p.value) {
				return "", false
			}
		case "server_max_window_bits":
			if p.value != "15" { // the compressor uses no other
				return "", false
			}
			answer = "; server_max_window_bits=15"
		default:
			return "", false
		}
	}
	return answer, true
}

func isWindowBits(value string) bool {
	switch value {
	case "8", "9", "10", "11", "12", "13", "14", "15":
		return true
	}
	return false
}
