package wire

import "fmt"

// An Error describes an invalid envelope. Its text is sent to the client.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Errors other than JSON syntax errors.
const (
	ErrEmpty         Error = "message is empty"
	ErrNotObject     Error = "message must be a JSON object"
	ErrNoType        Error = "type is missing"
	ErrType          Error = "type must be a string of 1 to 128 bytes"
	ErrMeta          Error = "meta must be an object"
	ErrCorrelationID Error = "correlationId must be a string of at most 128 bytes"
	ErrTimeout       Error = "meta.timeoutMs must be an integer of at least 1"
	ErrAck           Error = "meta.ack must be true or false"
	ErrCredit        Error = "meta.credit must be an integer of at least 0"
	ErrTruncated     Error = "message ends too early"
	ErrDepth         Error = "message is nested deeper than 64 levels"
	ErrUTF8          Error = "message is not valid UTF-8"
)

// errDuplicate returns the error for a key that occurs twice.
func errDuplicate(key []byte) error { return Error(`duplicate key "` + string(key) + `"`) }

// A SyntaxError reports the position of a JSON syntax error.
type SyntaxError struct {
	Offset int // of the unexpected byte
}

// Error returns a text with the offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("message is not valid JSON: unexpected character at byte %d", e.Offset)
}
