package durablestreams

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// A format is how messages of a content type are put together.
type format struct {
	contentType string
	json        bool // messages are elements of an array
	base64      bool // SSE cannot carry the bytes
}

func newFormat(contentType string) format {
	name := mediaType(contentType)
	f := format{contentType: contentType, json: name == "application/json"}
	f.base64 = !f.json && !strings.HasPrefix(name, "text/")
	return f
}

// body returns messages as the body of a response.
func (f format) body(messages [][]byte) []byte {
	if !f.json {
		return bytes.Join(messages, nil)
	}
	return append(append([]byte{'['}, bytes.Join(messages, []byte{','})...), ']')
}

// appendEvent appends an event of SSE. Each line of the data is one of the event, so that no message can begin an
// event of its own. Readers remove one space at the beginning of a line.
func appendEvent(out []byte, name, data string) []byte {
	out = append(out, "event: "+name+"\n"...)
	data = strings.ReplaceAll(strings.ReplaceAll(data, "\r\n", "\n"), "\r", "\n") // each ends a line
	for line := range strings.SplitSeq(data, "\n") {
		out = append(out, "data:"...)
		if strings.HasPrefix(line, " ") {
			out = append(out, ' ')
		}
		out = append(append(out, line...), '\n')
	}
	return append(out, '\n')
}

// appendData appends messages as an event of SSE.
func (f format) appendData(out []byte, messages [][]byte) []byte {
	body := f.body(messages)
	if f.base64 {
		return appendEvent(out, "data", base64.StdEncoding.EncodeToString(body))
	}
	return appendEvent(out, "data", string(body))
}
