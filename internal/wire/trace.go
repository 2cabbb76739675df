package wire

import (
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/tracing"
)

// This file has the trace context of a message: the members traceparent and tracestate of meta.
// Servers read it only if they trace messages.

// FindTrace reads the trace context of an envelope. An invalid member counts as absent, and so do
// both of them if meta follows a long payload. truncated says that data is the first part of the
// envelope.
func FindTrace(data []byte, truncated bool) (t tracing.TraceContext) {
	p := headParser{frame: data, whole: !truncated, trace: &t}
	_ = p.parse()
	return t
}

// FindBinaryTrace is [FindTrace] for a binary envelope.
func FindBinaryTrace(data []byte, truncated bool) (t tracing.TraceContext) {
	switch head, _, err := SplitBinary(data); {
	case err == nil:
		return FindTrace(head, false)
	case truncated && len(data) > headLengthBytes:
		return FindTrace(data[headLengthBytes:], true)
	}
	return t
}

// readTrace reads a member of meta at i, if it is one of the trace context.
func (p *headParser) readTrace(key []byte, i int) {
	into, limit := &p.trace.Parent, tracing.MaxParentBytes
	switch string(key) {
	case "traceparent":
	case "tracestate":
		into, limit = &p.trace.State, tracing.MaxStateBytes
	default:
		return
	}
	end, err := p.frame.skip(i)
	if err != nil || end-i < len(`""`) || p.frame[i] != '"' {
		return
	}
	if text := p.frame[i+1 : end-1]; *into == "" && len(text) <= limit && isPlain(text) {
		*into = string(text)
	}
}

// isPlain reports whether a string contains only printable ASCII, as trace contexts do, and no
// escapes.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' || c == '"' {
			return false
		}
	}
	return true
}

// appendTrace appends a trace context to a meta that has members.
func appendTrace(b []byte, t *tracing.TraceContext) []byte {
	if t == nil || t.Parent == "" || len(t.Parent) > tracing.MaxParentBytes {
		return b
	}
	b = append(b, `,"traceparent":`...)
	b = jsonplan.AppendString(b, t.Parent)
	if t.State != "" && len(t.State) <= tracing.MaxStateBytes {
		b = append(b, `,"tracestate":`...)
		b = jsonplan.AppendString(b, t.State)
	}
	return b
}
