package wsconn

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/flate"

	"github.com/penstock-go/penstock/internal/deflate"
)

// A Deflater compresses outgoing messages with permessage-deflate (RFC 7692) and lets
// clients compress theirs. A message to many is compressed once, without the windows that
// connections may keep from one message to the next. It serves any number of connections.
type Deflater struct {
	minBytes    int
	windowBytes atomic.Int64 // that are left for the windows of further connections

	// writers holds the compressors that are not in use: one per processor, because each takes 0.8 MB.
	// A nil element, which only tests add, has not been created yet.
	writers chan *flate.Writer
	count   atomic.Int32 // with those in use
}

// NewDeflater returns a deflater that does not compress messages shorter than minBytes. The windows of all
// connections together take at most windowBytes; if that is 0, no connection keeps any.
func NewDeflater(minBytes int, windowBytes int64) *Deflater {
	d := &Deflater{minBytes: minBytes, writers: make(chan *flate.Writer, max(runtime.NumCPU(), runtime.GOMAXPROCS(0)))}
	d.windowBytes.Store(windowBytes)
	return d
}

// newWindows returns the windows that the server keeps after an offer, or nil if it keeps none.
func (d *Deflater) newWindows(o *deflate.Offer) *deflate.Windows {
	if !o.PermitsWindows() {
		return nil
	}
	if d.windowBytes.Add(-deflate.MemoryBytes) < 0 {
		d.windowBytes.Add(deflate.MemoryBytes)
		return nil
	}
	return o.NewWindows()
}

// releaseWindows lets other connections have windows.
func (c *Conn) releaseWindows() {
	if c.windows != nil {
		c.opts.Deflater.windowBytes.Add(deflate.MemoryBytes)
	}
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

// bytes returns a sealed frame as it is transmitted next to a peer that inflates. w is nil if no window is kept.
func (d *Deflater) bytes(f *Frame, w *deflate.SendWindow) []byte {
	if f.control() || len(f.Text()) < d.minBytes {
		return f.bytes()
	}
	if w == nil {
		b, _ := d.shared(f)
		return b
	}
	if b := withWindow(f, w); b != nil {
		return b
	}
	b, compressed := d.shared(f)
	if compressed {
		w.Add(f.Text())
	}
	return b
}

// withWindow returns a frame compressed with a window, or nil if another connection needs the frame too, or if it gets no
// shorter, or is so long that the other compressors are better. It may get a little longer until the window is full:
// otherwise a message would stay out of it that later ones could refer to.
func withWindow(f *Frame, w *deflate.SendWindow) []byte {
	if len(f.Text()) >= deflate.WindowBytes || f.refs.Load() > 1 || f.deflated.tried {
		return nil
	}
	full := len(w.Text()) >= deflate.WindowBytes
	d := &f.deflated // is this connection's alone
	d.buf = w.Deflate(append(d.buf[:0], make([]byte, maxHeaderBytes)...), f.Text())
	if len(d.buf)-maxHeaderBytes >= len(f.Text()) && full {
		w.Forget(f.Text())
		return nil
	}
	return d.buf[putHeader(d.buf, f.buf[f.start]|rsv1):]
}

// shared returns a frame in the form that is the same for all connections.
func (d *Deflater) shared(f *Frame) (b []byte, compressed bool) {
	f.deflated.mu.Lock()
	defer f.deflated.mu.Unlock()
	if !f.deflated.tried {
		f.deflated.tried = true
		d.deflate(&f.deflated, f.buf[f.start], f.Text())
	}
	if len(f.deflated.buf) == 0 {
		return f.bytes(), false
	}
	return f.deflated.buf[f.deflated.start:], true
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
