package rawclient

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/flate"
)

// A deflation is permessage-deflate (RFC 7692) on one connection.
type deflation struct {
	received     []byte // to which the next message of the server may refer
	sent         []byte // to which the next message of the client may refer
	keepReceived int    // bytes of received; 0: the server keeps no context
	keepSent     int
	messages     int // of the client
}

// flushTail is what senders leave out at the end of a message (RFC 7692, section 7.2.1).
const flushTail = "\x00\x00\xff\xff"

// acceptDeflate returns what the server has made of an offer: nil if it does not compress.
func acceptDeflate(offer, answer string, fail func(string, ...any)) *deflation {
	if answer == "" {
		return nil
	}
	name, rest, _ := strings.Cut(answer, ";")
	if offer == "" || strings.TrimSpace(name) != "permessage-deflate" {
		fail("the handshake has the extension %q, which was not offered", answer)
		return nil
	}
	d := &deflation{keepReceived: 1 << 15, keepSent: 1 << 15}
	for param := range strings.SplitSeq(rest, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		bits, err := strconv.Atoi(value)
		valid := err == nil && 8 <= bits && bits <= 15
		switch {
		case name == "":
		case name == "server_no_context_takeover" && value == "":
			d.keepReceived = 0
		case name == "client_no_context_takeover" && value == "":
			d.keepSent = 0
		case name == "client_max_window_bits" && valid && strings.Contains(offer, name):
			d.keepSent = min(d.keepSent, 1<<bits)
		case name == "server_max_window_bits" && valid:
			d.keepReceived = min(d.keepReceived, 1<<bits)
		default:
			fail("the handshake has the parameter %q, which was not offered or is not valid", param)
		}
	}
	if strings.Contains(offer, "server_no_context_takeover") && d.keepReceived > 0 {
		fail("the server keeps a context that the offer %q does not permit: %q", offer, answer)
	}
	return d
}

// inflate returns a compressed message of the server.
func (d *deflation) inflate(message []byte) ([]byte, error) {
	// An empty last block after the tail lets the reader find the end (section 7.2.2).
	in := io.MultiReader(bytes.NewReader(message), strings.NewReader(flushTail+"\x01\x00\x00\xff\xff"))
	text, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(in, d.received), maxFrame))
	if err != nil {
		return nil, errors.Join(errors.New("a message is not compressed as RFC 7692 says"), err)
	}
	d.received = last(append(d.received, text...), d.keepReceived)
	return text, nil
}

// deflate returns a message of the client, of which every third one is not compressed. It must not refer further back than the
// agreed window, which the library cannot limit: a message that exceeds it is not compressed either.
func (d *deflation) deflate(text []byte) (message []byte, compressed bool) {
	d.messages++
	context := d.keepSent - len(text)
	if d.messages%3 == 0 || d.keepSent > 0 && context < 0 {
		return text, false
	}
	var b bytes.Buffer
	if err := flate.StatelessDeflate(&b, text, false, last(d.sent, max(0, context))); err != nil {
		panic(err) // a buffer has no errors
	}
	d.sent = last(append(d.sent, text...), d.keepSent)
	return bytes.TrimSuffix(b.Bytes(), []byte(flushTail)), true
}

// last returns at most the last n bytes.
func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
