package trace

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
)

// A csvParser parses lines of comma-separated values (RFC 4180). A quoted field must end on its
// line; otherwise one missing quote would consume the rest of the trace.
type csvParser struct {
	feed    lineReader
	csv     *csv.Reader
	columns [4]int // index of each of columnNames in a line; -1 if missing
	ignored []string
}

// columnNames returns the known columns. The first two are required.
func columnNames() [4]string { return [4]string{"time", "key", "cost", "type"} }

func newCSVParser(header []byte) (*csvParser, error) {
	p := new(csvParser)
	p.csv = csv.NewReader(&p.feed)
	p.csv.ReuseRecord = true
	p.csv.FieldsPerRecord = -1
	names, err := p.split(header)
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF means that the line is empty
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
			return nil, fmt.Errorf("the first line must name the columns, such as time,key,cost,type; %q is missing: %.80q", name, header)
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
		return nil, fmt.Errorf("line has %d fields; the first line names %d columns", len(fields), p.csv.FieldsPerRecord)
	case ok:
		return nil, fmt.Errorf("column %d: %w (a quoted field must end on its line, and a quote in it must be doubled)", parse.Column, parse.Err)
	}
	return fields, err
}

// A lineReader gives a csv.Reader a single line, so that it cannot continue on the next line.
type lineReader []byte

func (f *lineReader) Read(p []byte) (int, error) {
	if len(*f) == 0 {
		return 0, io.EOF
	}
	n := copy(p, *f)
	*f = (*f)[n:]
	return n, nil
}
