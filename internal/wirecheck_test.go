package internal_test

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wirecheck"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A scene is a connection whose messages a test writes.
type scene struct {
	*wirecheck.Conn

	violations, losses []string
}

func newScene() *scene {
	s := &scene{}
	s.Conn = wirecheck.New(wirecheck.Observer{
		Violation: func(text string) { s.violations = append(s.violations, text) },
		Loss:      func(topic, text string) { s.losses = append(s.losses, topic+": "+text) },
	})
	return s
}

// play observes text messages: those of the client begin with ">", those of the server with "<".
func (s *scene) play(messages ...string) *scene {
	for _, m := range messages {
		switch m[0] {
		case '>':
			s.Sent(wsframe.AppendFrame(nil, wsframe.Client, wsframe.Text, []byte(m[1:])))
		case '<':
			s.Received(wsframe.AppendFrame(nil, wsframe.Server, wsframe.Text, []byte(m[1:])))
		}
	}
	return s
}

// TestConn_Reports plays testdata/wirecheck.txt.
func TestConn_Reports(t *testing.T) {
	file, err := os.ReadFile("testdata/wirecheck.txt")
	require.NoError(t, err)
	name, s, messages := "", newScene(), namedMessages(string(file))
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		step, isStep := strings.CutPrefix(line, "\t")
		word, rest, _ := strings.Cut(step, " ")
		switch {
		case !isStep:
			name, s = line, newScene()
		case word == "publication":
			s.play(`<{"type":"SAID","meta":{"topic":"a","offset":` + rest + `}}`)
		case word == "position":
			s.play(`<{"type":"$ws:position","meta":{},"payload":{"topic":"a","epoch":"E","offset":` + rest + `}}`)
		case word == "=>":
			kind, want, _ := strings.Cut(rest, " ")
			found := map[string][]string{"violation": s.violations, "loss": s.losses}[kind]
			if kind == "" {
				assert.Empty(t, append(s.violations, s.losses...), name)
			} else if assert.Len(t, found, 1, name) {
				assert.Contains(t, found[0], want, name)
			}
			assert.True(t, kind == "violation" || len(s.violations) == 0, name)
		case messages[step] != "":
			s.play(messages[step])
		default:
			s.play(step)
		}
	}
}

// namedMessages returns the messages that have names.
func namedMessages(file string) map[string]string {
	named := map[string]string{}
	for line := range strings.Lines(file) {
		if name, message, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.Contains(name, " ") {
			named[name] = message
		}
	}
	return named
}

const (
	call1 = `>{"type":"ADD","meta":{"correlationId":"1","timeoutMs":1000}}`
	sum1  = `<{"type":"SUM","meta":{"correlationId":"1"}}`
)

func TestConn_OverdueCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene().play(call1, `>{"type":"NOTE","meta":{"correlationId":"2","ack":true}}`)
		time.Sleep(2 * time.Second)
		assert.Empty(t, s.Overdue(time.Second))
		time.Sleep(time.Second)
		require.Len(t, s.Overdue(time.Second), 1, "an event has no answer")
		assert.Contains(t, s.Overdue(time.Second)[0], "call ADD (1) has no answer 3s after it was sent")
		s.End()
		assert.Empty(t, s.Overdue(time.Second), "the connection was lost, which is the outcome")
		s.play(sum1, sum1)
		assert.Empty(t, s.violations)
	})
}

func TestConn_ParsesSplitAndBinaryMessages(t *testing.T) {
	s := newScene()
	for _, b := range wsframe.AppendFrame(wsframe.AppendFrame(nil, wsframe.Client, wsframe.Ping, []byte("p")), wsframe.Client, wsframe.Text, []byte(call1[1:])) {
		s.Sent([]byte{b})
	}
	head := `{"type":"SUM","meta":{"correlationId":"1"}}`
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head+"\x01\x02"...)
	for _, b := range wsframe.AppendFrame(nil, wsframe.Server, wsframe.Binary, message) {
		s.Received([]byte{b})
	}
	assert.Empty(t, s.violations)
	s.Received(wsframe.AppendFrame(nil, wsframe.Server, wsframe.Binary, message))
	assert.Len(t, s.violations, 1)
}

func TestConn_StopsAtBytesThatAreNoFrames(t *testing.T) {
	s := newScene()
	s.Received([]byte{0xff, 0xff, 0xff})
	s.play(sum1, sum1)
	assert.Empty(t, s.violations)
}
