//go:build !js

package fallback

import (
	"bufio"
	"bytes"
	"io"
	"strconv"

	"github.com/penstock-go/penstock/errors"
)

// maxEventBytes bounds an event, so that a server cannot fill the memory.
// Client.Options.MaxReadBytes is usually lower; it is checked when the event is a message.
const maxEventBytes = 64 << 20

var errEventTooBig = errors.New("fallback: an event of the server is too big")

// An event is one of a server-sent event stream (HTML Standard, section 9.2).
type event struct {
	id   int64 // 0 if it has none
	name string
	data []byte
}

// An eventReader parses the body of a response.
type eventReader struct {
	r    *bufio.Reader
	max  int // bytes of an event
	line []byte
	data []byte
}

func newEventReader(body io.Reader, maxBytes int) *eventReader {
	return &eventReader{r: bufio.NewReader(body), max: maxBytes}
}

// next returns the next event. Its data is valid until the next call. At the end of the body, next
// returns io.EOF, even inside an event: what has no empty line behind it is not an event.
func (r *eventReader) next() (event, error) {
	e := event{}
	r.data = r.data[:0]
	hasData := false
	for {
		if err := r.readLine(); err != nil {
			return event{}, err
		}
		if len(r.line) == 0 {
			if !hasData {
				e = event{}
				continue
			}
			e.data = r.data
			return e, nil
		}
		field, value, _ := bytes.Cut(r.line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "id":
			e.id, _ = strconv.ParseInt(string(value), 10, 64) // 0 if it is none of ours
		case "data":
			if hasData {
				r.data = append(r.data, '\n')
			}
			r.data, hasData = append(r.data, value...), true
		}
	}
}

// readLine reads a line without its end, which is LF or CRLF.
func (r *eventReader) readLine() error {
	r.line = r.line[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		r.line = append(r.line, part...)
		switch {
		case len(r.line)+len(r.data) > r.max:
			return errEventTooBig
		case err == nil:
			r.line = bytes.TrimSuffix(r.line[:len(r.line)-1], []byte("\r"))
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
