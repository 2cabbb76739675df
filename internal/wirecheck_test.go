package internal_test

import (
	"encoding/binary"
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

const (
	call1    = `>{"type":"ADD","meta":{"correlationId":"1","timeoutMs":1000}}`
	sum1     = `<{"type":"SUM","meta":{"correlationId":"1"}}`
	error1   = `<{"type":"RPC_ERROR","meta":{"correlationId":"1"},"payload":{"code":"INTERNAL"}}`
	ack1     = `<{"type":"$ws:ack","meta":{"correlationId":"1"}}`
	progress = `<{"type":"$ws:rpc-progress","meta":{"correlationId":"1"},"payload":1}`

	subscribe  = `>{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"a","positions":true}}`
	present    = `>{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":5}}`
	askState   = `>{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"a","state":true}}`
	subscribed = `<{"type":"$ws:subscribed","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":5,"recovered":true}}`
	welcome    = `<{"type":"$ws:welcome","meta":{"correlationId":"h"},"payload":{"connId":"c","session":{"token":"t","resumeWithinMs":1}}}`
	hello      = `>{"type":"$ws:hello","meta":{"correlationId":"h"}}`
	resume     = `>{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":"t","topics":[{"topic":"a","epoch":"E","offset":5}]}}`
)

func publication(offset string) string {
	return `<{"type":"SAID","meta":{"topic":"a","offset":` + offset + `}}`
}

func position(rest string) string {
	return `<{"type":"$ws:position","meta":{},"payload":{"topic":"a","epoch":"E","offset":` + rest + `}}`
}

func TestConn_Violations(t *testing.T) {
	for name, tt := range map[string]struct {
		messages []string
		want     string // a part of the only violation; "" is none
	}{
		"one answer":                       {[]string{call1, sum1}, ""},
		"error":                            {[]string{call1, error1}, ""},
		"ID is used again":                 {[]string{call1, sum1, call1, sum1}, ""},
		"two answers":                      {[]string{call1, sum1, error1}, "call ADD (1) was answered with RPC_ERROR after SUM"},
		"unknown ID":                       {[]string{sum1}, `SUM arrived with the correlation ID "1"`},
		"progress":                         {[]string{call1, progress, progress, sum1}, ""},
		"progress after the answer":        {[]string{call1, sum1, progress}, "call ADD (1) has an item or progress"},
		"acknowledged":                     {[]string{call1, ack1, sum1}, ""},
		"acknowledged twice":               {[]string{call1, ack1, ack1}, "call ADD (1) was acknowledged twice"},
		"acknowledged after the answer":    {[]string{call1, sum1, ack1}, "call ADD (1) was acknowledged after its answer"},
		"call of the server":               {[]string{`<{"type":"ASK","meta":{"correlationId":"$ws:1"}}`, `>{"type":"X","meta":{"correlationId":"$ws:1"}}`}, ""},
		"in order":                         {[]string{subscribe, subscribed, publication("6"), publication("7")}, ""},
		"gap":                              {[]string{hello, welcome, subscribe, subscribed, publication("6"), publication("8")}, `SAID of topic "a" has the offset 8 after 6`},
		"repeated":                         {[]string{hello, welcome, subscribe, subscribed, publication("6"), publication("6")}, "has the offset 6 after 6"},
		"gap without a session":            {[]string{subscribe, subscribed, publication("7")}, "has the offset 7 after 5"},
		"handler may have subscribed":      {[]string{subscribe, subscribed, publication("6"), call1, publication("9"), publication("10")}, ""},
		"gap of a handler's subscription":  {[]string{publication("3"), publication("5")}, "has the offset 5 after 3"},
		"explained gap":                    {[]string{subscribe, subscribed, position(`8,"lost":{"from":6,"to":8}`), publication("9")}, ""},
		"half an explanation":              {[]string{subscribe, subscribed, position(`8,"lost":{"from":7,"to":8}`)}, "must explain the whole gap"},
		"own publication":                  {[]string{subscribe, subscribed, position(`6`), publication("7")}, ""},
		"two own publications":             {[]string{subscribe, subscribed, position(`7`)}, "moves from 5 to 7 without a loss"},
		"end of an epoch":                  {[]string{subscribe, subscribed, position(`5,"ended":{"epoch":"D","offset":5}`), publication("6")}, ""},
		"end of an epoch moves":            {[]string{subscribe, subscribed, position(`6,"ended":{"epoch":"D","offset":5}`)}, "at the end of an epoch without a loss"},
		"another epoch without an end":     {[]string{subscribe, subscribed, `<{"type":"$ws:position","payload":{"topic":"a","epoch":"F","offset":6}}`}, "has the epoch F after E"},
		"recovered":                        {[]string{present, subscribed, publication("6")}, ""},
		"recovered from elsewhere":         {[]string{`>{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":3}}`, subscribed}, `topic "a" is recovered from offset 5, but the client has everything up to 3`},
		"state":                            {[]string{askState, `<{"type":"$ws:subscribed","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":5,"recovered":true,"state":2}}`, publication("1"), publication("4"), publication("6")}, ""},
		"state in parts":                   {[]string{askState, `<{"type":"$ws:subscribed","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":5,"recovered":true,"state":1,"more":true}}`, publication("1"), publication("6"), publication("4"), `<{"type":"$ws:state","payload":{"topic":"a"}}`, publication("7")}, ""},
		"repeated after the state":         {[]string{askState, `<{"type":"$ws:subscribed","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":5,"recovered":true,"state":1}}`, publication("1"), publication("1")}, "has the offset 1 after 5"},
		"subscribed again after the end":   {[]string{hello, welcome, subscribe, subscribed, `<{"type":"$ws:unsubscribed","payload":{"topic":"a"}}`, `<{"type":"$ws:subscribed","payload":{"topic":"a","epoch":"E","offset":9}}`, publication("10")}, ""},
		"resumed":                          {[]string{resume, publication("9"), `<{"type":"$ws:resumed","meta":{"correlationId":"r"},"payload":{"session":{"token":"u","resumeWithinMs":1},"memberId":"c","topics":[{"topic":"a","epoch":"E","offset":5,"recovered":true}]}}`, publication("6")}, ""},
		"gap after a resumed session":      {[]string{resume, `<{"type":"$ws:resumed","meta":{"correlationId":"r"},"payload":{"session":{"token":"u","resumeWithinMs":1},"memberId":"c","topics":[{"topic":"a","epoch":"E","offset":5,"recovered":true}]}}`, call1, publication("7")}, "has the offset 7 after 5"},
		"publications without an offset":   {[]string{publication("0"), publication("0")}, ""},
		"messages that are none":           {[]string{">x", "<x", `<{"type":"$ws:position","payload":3}`}, ""},
		"call with the ID of an open call": {[]string{call1, call1, sum1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene().play(tt.messages...)
			if tt.want == "" {
				assert.Empty(t, s.violations)
				return
			}
			require.Len(t, s.violations, 1)
			assert.Contains(t, s.violations[0], tt.want)
		})
	}
}

func TestConn_Losses(t *testing.T) {
	lost := `<{"type":"$ws:subscribed","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"E","offset":9,"recovered":false}}`
	ended := `<{"type":"$ws:subscribed","meta":{"correlationId":"s"},"payload":{"topic":"a","epoch":"F","offset":3,"recovered":true,"ended":{"epoch":"E","offset":3}}}`
	for name, tt := range map[string]struct {
		messages []string
		want     string
	}{
		"lost":                         {[]string{subscribe, subscribed, position(`8,"lost":{"from":6,"to":8}`)}, "the offsets 6 to 8"},
		"reset":                        {[]string{subscribe, subscribed, position(`8,"reset":true`)}, "a reset after offset 5"},
		"epoch ended before":           {[]string{subscribe, subscribed, position(`3,"ended":{"epoch":"D","offset":3}`)}, "the publications up to 5 are lost"},
		"not recovered":                {[]string{present, lost}, "does not reach back to offset 5"},
		"epoch ended while away":       {[]string{present, ended}, "the publications up to 5 are lost"},
		"first subscription":           {[]string{subscribe, lost}, ""},
		"epoch ended where client was": {[]string{subscribe, subscribed, position(`5,"ended":{"epoch":"D","offset":5}`)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene().play(tt.messages...)
			assert.Empty(t, s.violations)
			if tt.want == "" {
				assert.Empty(t, s.losses)
				return
			}
			require.Len(t, s.losses, 1)
			assert.Contains(t, s.losses[0], tt.want)
		})
	}
}

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
