//go:build !js

package fallback

import (
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

const maxTestBytes = 1 << 20

// events returns what a reader finds in a body, as text.
func events(body io.Reader) (found []string, err error) {
	r := newEventReader(body, maxTestBytes)
	for {
		e, err := r.next()
		if err != nil {
			return found, err
		}
		found = append(found, strconv.FormatInt(e.id, 10)+" "+e.name+" "+string(e.data))
	}
}

func TestEventReader_ReadsWhatServersAndProxiesSend(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                                   nil,
		"id: 1\ndata: {}\n\n":                {"1  {}"},
		"id: 1\r\ndata: {}\r\n\r\n":          {"1  {}"},
		"id:1\ndata:{}\n\n":                  {"1  {}"},
		":\n\n:comment\n\ndata: a\n\n":       {"0  a"},
		"event: close\nid: 7\ndata: a\n\n":   {"7 close a"},
		"event: ping\nid: 8\ndata:\n\n":      {"8 ping "},
		"event: ping\nid: 8\ndata\n\n":       {"8 ping "},
		"data: a\ndata: b\n\n":               {"0  a\nb"},
		"event: none\n\nid: 3\ndata: a\n\n":  {"3  a"},
		"id: 1\ndata: a":                     nil,
		"id: 1\ndata: a\n":                   nil,
		"data:  two spaces: and a colon\n\n": {"0   two spaces: and a colon"},
		"id: x\ndata: a\n\n":                 {"0  a"},
		"retry: 5\nunknown: b\ndata: a\n\n":  {"0  a"},
		"data: ä\u2028\ndata: b\n\n":         {"0  ä\u2028\nb"},
	} {
		for name, body := range map[string]io.Reader{
			"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		} {
			found, err := events(body)
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, want, found, "%s: %q", name, text)
		}
	}
}

func TestEventReader_ReturnsTheErrorOfTheBody(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	found, err := events(io.MultiReader(strings.NewReader("id: 1\ndata: a\n\nid: 2\nda"), iotest.ErrReader(cut)))
	assert.Equal(t, cut, err)
	assert.Equal(t, []string{"1  a"}, found)
}

// endless is a line without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	clear(p)
	return len(p), nil
}

func TestEventReader_BoundsEvents(t *testing.T) {
	t.Parallel()
	_, err := events(strings.NewReader(strings.Repeat("data: a\n", maxTestBytes)))
	assert.Equal(t, errEventTooBig, err)
	source := &endless{}
	_, err = events(io.MultiReader(strings.NewReader("data: "), source))
	assert.Equal(t, errEventTooBig, err)
	assert.InDelta(t, maxTestBytes, source.read, 10_000)
}

// FuzzEventReader compares with a model that sees the whole text, in pieces of any length.
func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{"id: 1\ndata: {}\n\n", ":\r\n\r\nevent: a\r\ndata: b\r\n\r\n", "data\n\ndata: \n\n", "data:\n"} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		found, err := events(&pieces{text, random})
		require.Equal(t, io.EOF, err)
		assert.Equal(t, model(string(text)), found)
	})
}

type pieces struct {
	text   []byte
	random *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(len(p.text), 1+p.random.IntN(8))])
	p.text = p.text[n:]
	return n, nil
}

// model parses events line by line.
func model(text string) (found []string) {
	end := strings.LastIndex(text, "\n")
	var id int64
	var name string
	var data []string
	if end < 0 {
		return nil
	}
	for line := range strings.SplitSeq(text[:end], "\n") {
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case strings.TrimSuffix(line, "\r") == "":
			if data != nil {
				found = append(found, strconv.FormatInt(id, 10)+" "+name+" "+strings.Join(data, "\n"))
			}
			id, name, data = 0, "", nil
		case field == "id":
			id, _ = strconv.ParseInt(value, 10, 64)
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return found
}
