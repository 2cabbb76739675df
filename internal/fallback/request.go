package fallback

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// Bounds of the bodies of requests.
const (
	maxOpenBytes  = 16 << 10 // with the access token of the client
	maxLineBytes  = 1 << 10  // of a down, and of the first line of an up
	maxBatchBytes = 64 << 10 // of the messages of an up, or one message of the maximum size

	// maxMessageBytes bounds a message where a router has no limit, so that sums of bytes are numbers.
	maxMessageBytes = 1 << 30
)

// A Mode is how a client receives events.
type Mode string

// The modes.
const (
	Stream Mode = "stream" // a response goes on until either side ends it
	Poll   Mode = "poll"   // a response ends with its first events
)

func (m Mode) valid() bool { return m == Stream || m == Poll }

// errMalformed refuses a body.
var errMalformed = errors.New("malformed body")

// An openRequest is the body of an open.
type openRequest struct {
	Protocols []string `json:"protocols"`
	Query     string   `json:"query"`
	Mode      Mode     `json:"mode"`
}

func parseOpen(body []byte) (open openRequest, err error) {
	if err := jsonv2.Unmarshal(body, &open); err != nil || !open.Mode.valid() {
		return open, errMalformed
	}
	for _, p := range open.Protocols {
		if !rules.IsToken(p) {
			return open, errMalformed
		}
	}
	for _, b := range []byte(open.Query) {
		if b <= ' ' || b >= 0x7f || b == '#' { // as net/http refuses them in a URL
			return open, errMalformed
		}
	}
	return open, nil
}

// A downRequest is the body of a down.
type downRequest struct {
	Secret string `json:"secret"`
	Ack    uint64 `json:"ack"`
	Mode   Mode   `json:"mode"`
	WaitMs *int64 `json:"waitMs"` // of a poll without events; nil: maxPollWait

	secret secret
}

// wait returns how long a poll waits for events.
func (d *downRequest) wait() time.Duration {
	if d.WaitMs == nil {
		return maxPollWait
	}
	return time.Duration(max(0, min(*d.WaitMs, maxPollWait.Milliseconds()))) * time.Millisecond
}

func parseDown(body []byte) (down downRequest, err error) {
	if err := jsonv2.Unmarshal(body, &down); err != nil || !down.Mode.valid() {
		return down, errMalformed
	}
	down.secret, err = secretOf(down.Secret)
	return down, err
}

// An upRequest is the first line of an up.
type upRequest struct {
	Secret string     `json:"secret"`
	Seq    uint64     `json:"seq"` // 0: there are no messages
	Ack    uint64     `json:"ack"`
	Close  *closeData `json:"close"` // nil: the connection stays open

	secret secret
}

// closeData are the data of a close frame and of an event close.
type closeData struct {
	Code   int    `json:"code"` // 0 in a request: a close frame without a code
	Reason string `json:"reason"`
}

func parseUp(line []byte) (up upRequest, err error) {
	if err := jsonv2.Unmarshal(line, &up); err != nil {
		return up, errMalformed
	}
	if c := up.Close; c != nil {
		if c.Code == 0 {
			c.Code = wsframe.NoStatus
		}
		if c.Code < 1000 || c.Code > 4999 {
			return up, errMalformed
		}
	}
	up.secret, err = secretOf(up.Secret)
	return up, err
}

// withoutMessages returns the first line of an up for the same connection that has no messages.
func (up *upRequest) withoutMessages() []byte {
	line, _ := jsonv2.Marshal(upRequest{Secret: up.Secret, Ack: up.Ack}) // of strings and numbers
	return line
}

// secretOf returns an unknown secret for a text that is none, so that it is answered like one.
func secretOf(text string) (secret, error) {
	if text == "" {
		return secret{}, errMalformed
	}
	s, ok := parseSecret(text)
	if !ok {
		return secret{}, nil
	}
	return s, nil
}

// A body is that of a request, which has at most some bytes and must arrive in time.
type body struct {
	*bufio.Reader

	control *http.ResponseController
	length  int64     // -1 if it is unknown
	counts  *received // of the bytes behind the first line; nil: they are few
}

// newBody returns the body of a request, or the status with which the request is refused.
func newBody(w http.ResponseWriter, req *http.Request, maxBytes int64) (b body, status int) {
	if req.ContentLength > maxBytes {
		return body{}, http.StatusRequestEntityTooLarge
	}
	b = body{
		Reader:  bufio.NewReaderSize(http.MaxBytesReader(w, req.Body, maxBytes), maxLineBytes),
		control: http.NewResponseController(w), length: req.ContentLength,
	}
	_ = b.control.SetReadDeadline(time.Now().Add(bodyTimeout)) // if it cannot be set, that of the server applies
	return b, 0
}

// readBody returns the whole body of a request, or the status with which the request is refused.
func readBody(w http.ResponseWriter, req *http.Request, maxBytes int64) (text []byte, status int) {
	b, status := newBody(w, req, maxBytes)
	if status != 0 {
		return nil, status
	}
	return b.rest()
}

// rest returns the rest of the body, or the status with which the request is refused.
func (b body) rest() (text []byte, status int) {
	var in io.Reader = b
	if b.counts != nil {
		in = countingReader{b, b.counts}
	}
	text, err := io.ReadAll(in)
	if err == nil { // otherwise, net/http reads what has not arrived, and needs the deadline
		_ = b.control.SetReadDeadline(time.Time{}) // so that the end of a stream is the client's
	}
	return text, statusOfRead(err)
}

// line returns the first line of the body, without its end. arrived reports whether nothing of the rest is on its way.
func (b body) line() (line []byte, arrived bool, status int) {
	line, err := b.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, false, http.StatusBadRequest
	case err == nil || errors.Is(err, io.EOF):
		arrived = int64(len(line)+b.Buffered()) == b.length
		return bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))), arrived, 0
	}
	return nil, false, statusOfRead(err)
}

// statusOfRead returns the status for an error of a body, or 0. The client may send a body again that has not
// arrived.
func statusOfRead(err error) int {
	var tooLong *http.MaxBytesError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &tooLong):
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusServiceUnavailable
}
