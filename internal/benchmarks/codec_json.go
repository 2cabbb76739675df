package main

import (
	"errors"
	"strconv"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// errLibrary reports JSON that only the library decodes: what is invalid, and what is rare.
var errLibrary = errors.New("decode with the library")

// DecodeJSON decodes an object of known members without escape sequences.
func (m *CodecSay) DecodeJSON(p []byte) error {
	d := decoder{p: p}
	var seen uint8
	for more := d.begin(); more; more = d.more() {
		var bit uint8
		switch name := d.name(); string(name) {
		case "room":
			bit, m.Room = 1, string(d.text())
		case "text":
			bit, m.Text = 2, string(d.text())
		case "n":
			bit, m.N = 4, d.integer()
		default:
			return errLibrary
		}
		if seen&bit != 0 {
			return errLibrary
		}
		seen |= bit
	}
	return d.end()
}

// AppendJSON appends the object.
func (m CodecSaid) AppendJSON(b []byte) ([]byte, error) {
	var err error
	if b, err = appendText(append(b, `{"room":`...), m.Room); err != nil {
		return b, err
	}
	if b, err = appendText(append(b, `,"user":`...), m.User); err != nil {
		return b, err
	}
	if b, err = appendText(append(b, `,"text":`...), m.Text); err != nil {
		return b, err
	}
	b = strconv.AppendInt(append(b, `,"n":`...), int64(m.N), 10)
	return append(b, '}'), nil
}

// appendText appends a JSON string. It returns an error for invalid UTF-8.
func appendText(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return jsonv2.AppendQuote(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}

// A decoder reads an object. After a failure, its methods return zero values.
type decoder struct {
	p      []byte
	i      int
	failed bool
}

// begin reads the start of the object and reports whether it has a member.
func (d *decoder) begin() bool {
	d.expect('{')
	if d.peek() != '}' {
		return !d.failed
	}
	d.i++
	return false
}

// more reads what follows a member and reports whether it is another member.
func (d *decoder) more() bool {
	c := d.peek()
	d.i++
	if c != ',' && c != '}' {
		d.failed = true
	}
	return c == ',' && !d.failed
}

// end returns an error if the decoder has failed or anything follows the object.
func (d *decoder) end() error {
	if d.peek(); d.failed || d.i < len(d.p) {
		return errLibrary
	}
	return nil
}

// peek skips white space and returns the next byte, or 0 if there is none.
func (d *decoder) peek() byte {
	for ; d.i < len(d.p); d.i++ {
		if c := d.p[d.i]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (d *decoder) expect(c byte) {
	if d.peek() != c {
		d.failed = true
	}
	d.i++
}

func (d *decoder) name() []byte {
	name := d.text()
	d.expect(':')
	return name
}

// text returns the content of a string without escape sequences.
func (d *decoder) text() []byte {
	d.expect('"')
	if d.failed {
		return nil
	}
	for i := d.i; i < len(d.p); i++ {
		switch c := d.p[i]; {
		case c == '"':
			text := d.p[d.i:i]
			d.i = i + 1
			return text
		case c == '\\' || c < ' ':
			d.failed = true
			return nil
		}
	}
	d.failed = true
	return nil
}

// integer returns an integer of at most 18 digits.
func (d *decoder) integer() int {
	negative := d.peek() == '-'
	if negative {
		d.i++
	}
	start, n := d.i, 0
	for ; d.i < len(d.p) && d.p[d.i]-'0' <= 9; d.i++ {
		n = n*10 + int(d.p[d.i]-'0')
	}
	if digits := d.i - start; digits == 0 || digits > 18 || digits > 1 && d.p[start] == '0' {
		d.failed = true
	}
	if negative {
		return -n
	}
	return n
}
