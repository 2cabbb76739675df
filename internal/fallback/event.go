package fallback

import (
	"strconv"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// An event is sent to a client: a message, or one with a name.
type event struct {
	name string // "" for a message
	data []byte // without line breaks
}

// messageEvent returns the event of a message, which is JSON and whose line breaks are thus white space. It takes
// ownership of message.
func messageEvent(message []byte) event {
	for i, b := range message {
		if b == '\n' || b == '\r' {
			message[i] = ' '
		}
	}
	return event{data: message}
}

// pingEvent asks the client for a request.
func pingEvent() event { return event{name: "ping"} }

// closeEvent is the last event of a connection.
func closeEvent(closed closeData) event { return jsonEvent("close", closed) }

// openData are the data of the event open, which is the first one and has no ID.
type openData struct {
	Secret   string `json:"secret"`
	Protocol string `json:"protocol"`
}

func jsonEvent(name string, data any) event {
	text, _ := jsonv2.Marshal(data, jsonv2.AllowInvalidUTF8(true)) // of strings and numbers
	return event{name, text}
}

// append appends the event as the format of Server-Sent Events has it (HTML, section 9.2.5). The event open has
// no ID, and 0 here.
func (e event) append(dst []byte, id uint64) []byte {
	if e.name != "" {
		dst = append(append(append(dst, "event: "...), e.name...), '\n')
	}
	if id > 0 {
		dst = append(strconv.AppendUint(append(dst, "id: "...), id, 10), '\n')
	}
	return append(append(append(dst, "data: "...), e.data...), "\n\n"...)
}

// size is about what the event takes of a window.
func (e event) size() int { return len(e.data) + eventBytes }

// eventBytes is about what an event takes without its data.
const eventBytes = 64

// comment is sent instead of an event, so that proxies do not end a response.
//
//nolint:gochecknoglobals // never changed
var comment = []byte(":\n\n")

// A batch are the next events of a response.
type batch struct {
	text []byte // empty: there were none in time
	last uint64 // ID of the last one, or of the one before
	end  bool   // no event follows
}
