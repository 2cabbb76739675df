package deflate

import (
	"net/http"
	"strconv"
	"strings"
)

// An Offer is an offer of permessage-deflate that the server can meet (RFC 7692, section 7.1).
type Offer struct {
	serverBits      bool // the answer must have server_max_window_bits
	clientBits      int  // of the client's window; 0 if the server must not limit it
	sends, receives bool // the client permits that a window is kept in this direction
}

// PermitsWindows reports whether the server may keep a window.
func (o *Offer) PermitsWindows() bool { return o.sends || o.receives }

// NewWindows returns the windows that the client permits.
func (o *Offer) NewWindows() *Windows { return &Windows{sends: o.sends, receives: o.receives} }

// ParseOffer returns the first offer that the server can meet, or nil. ok is false if the header
// is malformed; the handshake must then fail (RFC 6455, section 9.1).
func ParseOffer(h http.Header) (offer *Offer, ok bool) {
	offers, ok := parseExtensions(strings.Join(h.Values("Sec-WebSocket-Extensions"), ","))
	if !ok {
		return nil, false
	}
	for _, o := range offers {
		if o.name != "permessage-deflate" {
			continue
		}
		if offer := parseParams(o.params); offer != nil {
			return offer, true
		}
	}
	return nil, true
}

func parseParams(params []extensionParam) *Offer {
	o := &Offer{sends: true, receives: true}
	seen := map[string]bool{}
	for _, p := range params {
		if seen[p.name] {
			return nil
		}
		seen[p.name] = true
		switch p.name {
		case "server_no_context_takeover", "client_no_context_takeover":
			if p.value != "" {
				return nil
			}
		case "client_max_window_bits":
			if o.clientBits = parseWindowBits(p.value); o.clientBits == 0 {
				return nil
			}
		case "server_max_window_bits":
			if p.value != "15" { // the compressors use no other
				return nil
			}
			o.serverBits = true
		default:
			return nil
		}
	}
	o.sends = !seen["server_no_context_takeover"]
	// The window of a client that cannot limit it takes 32 KiB. zlib cannot compress with one of 256 bytes.
	o.receives = !seen["client_no_context_takeover"] && o.clientBits > 8
	return o
}

// parseWindowBits returns 15 for a parameter without a value, and 0 for one that is not valid.
func parseWindowBits(value string) int {
	switch value {
	case "8", "9", "10", "11", "12", "13", "14", "15":
		bits, _ := strconv.Atoi(value)
		return bits
	case "":
		return 15
	}
	return 0
}

// Answer returns the extension that the server uses. w is nil if no window is kept.
func (o *Offer) Answer(w *Windows) string {
	answer := "permessage-deflate"
	if w == nil || !w.sends {
		answer += "; server_no_context_takeover"
	}
	if w == nil || !w.receives {
		answer += "; client_no_context_takeover"
	} else {
		answer += "; client_max_window_bits=" + strconv.Itoa(min(o.clientBits, windowBits))
	}
	if o.serverBits {
		answer += "; server_max_window_bits=15"
	}
	return answer
}
