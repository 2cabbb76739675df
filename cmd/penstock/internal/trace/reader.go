// Package trace reads recorded requests to a limiter, one per line, as CSV or JSON.
package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/penstock-go/penstock/errors"
)

// A Record is one request.
type Record struct {
	Line   int64 // in the trace, from 1
	Micros int64 // time in microseconds since 1970
	Key    string
	Type   string // "" if missing
	Cost   int64  // 1 if missing
}

// An InvalidLine is a line that is not a valid request. Reading continues with the next line.
type InvalidLine struct {
	Line int64 // from 1
	Err  error
}

func (b *InvalidLine) Error() string { return fmt.Sprintf("line %d: %v", b.Line, b.Err) }

// Unwrap returns Err.
func (b *InvalidLine) Unwrap() error { return b.Err }

// ErrEmpty means that a trace has no line.
var ErrEmpty = errors.New("the trace is empty")

// A Format is the format of a trace.
type Format string

// Formats of a trace.
const (
	Auto      Format = "auto"  // JSONLines if the first line begins with a brace, else CSV
	CSV       Format = "csv"   // the first line names the columns
	JSONLines Format = "jsonl" // one object per line
)

// MaxLineBytes is the maximum length of a line, including the newline.
const MaxLineBytes = 64 << 10

// A Reader reads a trace line by line, in constant memory.
type Reader struct {
	in      *bufio.Reader
	parse   func(line []byte) (Record, error)
	first   []byte       // the first line, if it is a request that Next has not returned
	invalid *InvalidLine // the first line, if it is invalid and Next has not returned it
	line    int64
	blank   int64

	ignored []string
}

// NewReader returns a Reader. It reads the first line, and returns an error if the format is CSV
// and the line does not name the columns.
func NewReader(r io.Reader, format Format) (*Reader, error) {
	t := &Reader{in: bufio.NewReaderSize(r, MaxLineBytes)}
	first, err := t.next()
	if errors.Is(err, io.EOF) {
		return nil, ErrEmpty
	}
	if invalid, ok := errors.AsType[*InvalidLine](err); ok && format == JSONLines {
		t.parse, t.invalid = new(jsonParser).parse, invalid
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	first = bytes.TrimPrefix(first, []byte("\ufeff"))
	if format == JSONLines || format == Auto && bytes.HasPrefix(bytes.TrimSpace(first), []byte("{")) {
		t.parse = new(jsonParser).parse
		t.first = bytes.Clone(first)
		return t, nil
	}
	csv, err := newCSVParser(first)
	if err != nil {
		return nil, &InvalidLine{t.line, err}
	}
	t.parse, t.ignored = csv.parse, csv.ignored
	return t, nil
}

// Ignored returns the names of unknown columns.
func (t *Reader) Ignored() []string { return t.ignored }

// Line returns the number of the last line read.
func (t *Reader) Line() int64 { return t.line }

// Blank returns the number of blank lines, which are neither requests nor invalid.
func (t *Reader) Blank() int64 { return t.blank }

// Next returns the next request. It returns an [*InvalidLine] error for an invalid line, and io.EOF
// at the end. Any other error comes from the underlying reader and is final.
func (t *Reader) Next() (Record, error) {
	if invalid := t.invalid; invalid != nil {
		t.invalid = nil
		return Record{}, invalid
	}
	line, err := t.first, error(nil)
	if t.first = nil; line == nil {
		line, err = t.next()
	}
	if err != nil {
		return Record{}, err
	}
	record, err := t.parse(line)
	if err != nil {
		return Record{}, &InvalidLine{t.line, err}
	}
	record.Line = t.line
	return record, nil
}

// next returns the next line that is not blank, without its newline. It is valid until the next
// call.
func (t *Reader) next() ([]byte, error) {
	for {
		line, err := t.in.ReadSlice('\n')
		if len(line) > 0 {
			t.line++
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, t.skip()
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return nil, err
		case len(bytes.TrimSpace(line)) == 0:
			t.blank++
		default:
			return bytes.TrimRight(line, "\r\n"), nil
		}
	}
}

// skip discards the rest of a line that is too long.
func (t *Reader) skip() error {
	for {
		_, err := t.in.ReadSlice('\n')
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return &InvalidLine{t.line, fmt.Errorf("line is longer than %d bytes", MaxLineBytes)}
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
