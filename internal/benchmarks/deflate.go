package main

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	klauspost "github.com/klauspost/compress/flate"
)

// deflateMode is an environment variable that is set if the server compresses: to one of windowModes if
// a connection keeps windows, and else to "shared".
const deflateMode = "BENCHMARKS_DEFLATE"

// deflateMinBytes is the length from which servers compress. It is less than the libraries recommend,
// so that all of them compress the messages of 200 bytes.
const deflateMinBytes = 128

// compresses reports whether this process is a server that compresses.
func compresses() bool { return os.Getenv(deflateMode) != "" }

// offer returns the header with which a client offers what browsers offer.
func (p *process) offer() string {
	if !p.deflates {
		return ""
	}
	return "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
}

// accepts returns an error if the server has not accepted the offer. It notes the window to which the server
// limits clients.
func (p *process) accepts(h http.Header) error {
	extensions := h.Get("Sec-WebSocket-Extensions")
	if p.deflates && !strings.HasPrefix(extensions, "permessage-deflate") {
		return fmt.Errorf("extensions %q cannot be used: %v", extensions, h)
	}
	if p.window > 0 { // of an earlier connection
		return nil
	}
	p.window = 32 << 10
	if _, limit, ok := strings.Cut(extensions, "client_max_window_bits="); ok {
		bits, _, _ := strings.Cut(limit, ";")
		n, err := strconv.Atoi(bits)
		check(err)
		p.window = 1 << n
	}
	return nil
}

// encode returns the frame of a request.
func (p *process) encode(text string) []byte {
	if !p.deflates {
		return masked(text)
	}
	return maskedFrame(fin|rsv1|1, deflated(text, p.window))
}

// deflated compresses a message with references over at most window bytes. It does not refer to earlier
// messages, whatever the server allows.
func deflated(text string, window int) string {
	var out strings.Builder
	var w deflater
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if window < 32<<10 { // which the standard library cannot limit
		w, err = klauspost.NewWriterWindow(&out, window)
	}
	check(err)
	_, err = io.WriteString(w, text)
	check(err)
	check(w.Flush())
	return strings.TrimSuffix(out.String(), flushTail)
}

// A deflater is what compressors of both libraries have.
type deflater interface {
	io.Writer
	Reset(dst io.Writer)
	Flush() error
}

// flushTail ends a flush and is not transmitted (RFC 7692, section 7.2.1).
const flushTail = "\x00\x00\xff\xff"

// inflated decompresses the first message of a connection.
func inflated(message []byte) ([]byte, error) {
	end := flushTail + "\x01\x00\x00\xff\xff"
	return io.ReadAll(flate.NewReader(io.MultiReader(bytes.NewReader(message), strings.NewReader(end))))
}

// checkCompression ends the program if the first reply of the server is not compressed, or not what
// the request asks for.
func checkCompression(p *process, c contender, want string) {
	cl, err := dial(p, c)
	check(err)
	defer cl.close()
	_, err = cl.conn.Write(p.encode(c.request(0)))
	check(err)
	message, err := cl.message()
	check(err)
	text, err := inflated(message)
	if err != nil {
		fatal(fmt.Errorf("%s: the reply cannot be decompressed: %w", c.name, err))
	}
	if !cl.compressed || !bytes.HasPrefix(text, []byte(want)) {
		fatal(fmt.Errorf("%s: the reply is not compressed, or wrong: %.80q", c.name, text))
	}
}
