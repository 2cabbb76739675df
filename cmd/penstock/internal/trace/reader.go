// Package trace reads what was asked of a limiter: one call a line, as CSV or as JSON.
package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/penstock-go/penstock/errors"
)

// A Record is one call.
type Record struct {
	Line   int64 // in the trace, from 1
	Micros int64 // when, in microseconds since 1970
	Key    string
	Type   string // "" if the trace does not say
	Cost   int64  // 1 if the trace does not say
}

// A BadLine is a line that is no call. The lines after it can be read.
type BadLine struct {
	Line int64 // from 1
	Err  error // what is wrong, and what would be right
}

func (b *BadLine) Error() string { return fmt.Sprintf("line %d: %v", b.Line, b.Err) }

// Unwrap returns what is wrong.
func (b *BadLine) Unwrap() error { return b.Err }

// A Format is how a trace is written.
type Format string

// The formats there are.
const (
	Auto      Format = "auto"  // JSONLines if the first line begins with a brace, else CSV
	CSV       Format = "csv"   // the first line names the columns
	JSONLines Format = "jsonl" // an object a line
)

// MaxLineBytes is the length of the longest line that is read, with its end.
const MaxLineBytes = 64 << 10

// A Reader reads a trace line by line, in constant memory.
type Reader struct {
	in    *bufio.Reader
	parse func(line []byte) (Record, error)
	held  []byte   // the first line, if it is a call
	bad   *BadLine // the first line, if it should be a call
	line  int64
	blank int64

	ignored []string
}

// NewReader returns a reader of a trace. It reads the first line, and returns an error if
// that should name the columns and does not.
func NewReader(r io.Reader, format Format) (*Reader, error) {
	t := &Reader{in: bufio.NewReaderSize(r, MaxLineBytes)}
	first, err := t.next()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the trace is empty")
	}
	if bad, ok := errors.AsType[*BadLine](err); ok && format == JSONLines {
		t.parse, t.bad = new(jsonParser).parse, bad
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	first = bytes.TrimPrefix(first, []byte("\ufeff"))
	if format == JSONLines || format == Auto && bytes.HasPrefix(bytes.TrimSpace(first), []byte("{")) {
		t.parse = new(jsonParser).parse
		t.held = bytes.Clone(first)
		return t, nil
	}
	csv, err := newCSVParser(first)
	if err != nil {
		return nil, &BadLine{t.line, err}
	}
	t.parse, t.ignored = csv.parse, csv.ignored
	return t, nil
}

// Ignored returns the names of columns that mean nothing.
func (t *Reader) Ignored() []string { return t.ignored }

// Line returns the number of the last line that was read.
func (t *Reader) Line() int64 { return t.line }

// Blank returns how many lines held nothing but spaces. They are neither calls nor bad.
func (t *Reader) Blank() int64 { return t.blank }

// Next returns the next call. It returns a [BadLine] for a line that is none, and io.EOF
// after the last one. Every other error comes from the reader below, and ends the trace.
func (t *Reader) Next() (Record, error) {
	if bad := t.bad; bad != nil {
		t.bad = nil
		return Record{}, bad
	}
	line, err := t.held, error(nil)
	if t.held = nil; line == nil {
		line, err = t.next()
	}
	if err != nil {
		return Record{}, err
	}
	record, err := t.parse(line)
	if err != nil {
		return Record{}, &BadLine{t.line, err}
	}
	record.Line = t.line
	return record, nil
}

// next returns the next line that is not blank, without its end. It is good until the
// next one is read.
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

// skip reads to the end of a line that is too long.
func (t *Reader) skip() error {
	for {
		_, err := t.in.ReadSlice('\n')
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return &BadLine{t.line, fmt.Errorf("it is longer than %d bytes", MaxLineBytes)}
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
