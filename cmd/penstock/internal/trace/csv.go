package trace

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
)

// A csvParser reads lines of comma-separated values (RFC 4180, but that a field ends on
// its line: otherwise one lost quote would swallow the rest of the trace).
type csvParser struct {
	feed    lineFeed
	csv     *csv.Reader
	columns [4]int // where columnNames are; -1 if nowhere
	ignored []string
}

// columnNames are the columns that mean something. The first two must be there.
func columnNames() [4]string { return [4]string{"time", "key", "cost", "type"} }

func newCSVParser(header []byte) (*csvParser, error) {
	p := new(csvParser)
	p.csv = csv.NewReader(&p.feed)
	p.csv.ReuseRecord = true
	p.csv.FieldsPerRecord = -1
	names, err := p.split(header)
	if err != nil && !errors.Is(err, io.EOF) { // which is a line of nothing
		return nil, err
	}
	names = slices.Clone(names)
	for i := range names {
		names[i] = strings.ToLower(strings.TrimSpace(names[i]))
	}
	known := columnNames()
	for i, name := range known {
		p.columns[i] = slices.Index(names, name)
		switch {
		case p.columns[i] < 0 && i < 2:
			return nil, fmt.Errorf("the first line must name the columns, such as time,key,cost,type; it names no %q: %.80q", name, header)
		case p.columns[i] >= 0 && slices.Contains(names[p.columns[i]+1:], name):
			return nil, fmt.Errorf("the first line names %q twice", name)
		}
	}
	for _, name := range names {
		if !slices.Contains(known[:], name) {
			p.ignored = append(p.ignored, name)
		}
	}
	p.csv.FieldsPerRecord = len(names)
	return p, nil
}

func (p *csvParser) parse(line []byte) (Record, error) {
	fields, err := p.split(line)
	if err != nil {
		return Record{}, err
	}
	var texts [4]string
	for i, column := range p.columns {
		if column >= 0 {
			texts[i] = fields[column]
		}
	}
	return newRecord(texts)
}

func (p *csvParser) split(line []byte) ([]string, error) {
	p.feed = line
	fields, err := p.csv.Read()
	parse, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case ok && errors.Is(err, csv.ErrFieldCount):
		return nil, fmt.Errorf("it has %d fields; the first line names %d columns", len(fields), p.csv.FieldsPerRecord)
	case ok:
		return nil, fmt.Errorf("column %d: %w (a quoted field ends on its line, and quotes in it are doubled)", parse.Column, parse.Err)
	}
	return fields, err
}

// A lineFeed gives a csv.Reader one line, so that it cannot read on into the next.
type lineFeed []byte

func (f *lineFeed) Read(p []byte) (int, error) {
	if len(*f) == 0 {
		return 0, io.EOF
	}
	n := copy(p, *f)
	*f = (*f)[n:]
	return n, nil
}
