package clienttest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// An entry is a scenario of docs/client-scenarios.md.
type entry struct {
	number int
	name   string
	run    func(*scenario)
}

func scenarios() []entry {
	return slices.Concat(connectingScenarios, closeCodeScenarios, callScenarios, servedScenarios, streamScenarios, topicScenarios, recoveryScenarios, queueScenarios, sessionScenarios, closingScenarios)
}

// A scenario is run with one client and a scripted server.
type scenario struct {
	*testing.T
	*server

	driver driver
	url    string
	cbor   bool              // the client uses CBOR
	last   int               // operation
	ops    map[string]string // what each operation is
}

func TestScenarios_GoClient(t *testing.T)     { runGoScenarios(t, false) }
func TestScenarios_GoClientCBOR(t *testing.T) { runGoScenarios(t, true) }

func runGoScenarios(t *testing.T, cbor bool) {
	for _, e := range scenarios() {
		t.Run(fmt.Sprintf("%02d %s", e.number, e.name), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := newPipeNetwork()
				d := newGoDriver(&http.Client{Transport: &http.Transport{DialContext: network.dial}})
				s := &scenario{T: t, driver: d, url: "ws://example.com/", cbor: cbor}
				s.runEntry(e, network, time.Hour)
			})
		})
	}
}

func TestScenarios_TypeScriptClient(t *testing.T) { runNodeScenarios(t, false, 15) }

func TestScenarios_TypeScriptClientCBOR(t *testing.T) { runNodeScenarios(t, true, 8) }

// runNodeScenarios runs some of the scenarios in the quick tier, because they take real time.
func runNodeScenarios(t *testing.T, cbor bool, some int) {
	buildNode(t)
	for _, e := range testscale.Sample(scenarios(), some) {
		t.Run(fmt.Sprintf("%02d %s", e.number, e.name), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s := &scenario{T: t, driver: startNode(t, nodeScale), url: "ws://" + listener.Addr().String() + "/", cbor: cbor}
			s.runEntry(e, listener, 30*time.Second)
		})
	}
}

// runEntry runs a scenario from the start of the server to its end.
func (s *scenario) runEntry(e entry, listener net.Listener, limit time.Duration) {
	c := clock{start: time.Now(), scale: s.driver.scale(), limit: limit}
	s.ops = map[string]string{}
	s.server = &server{t: s.T, clock: c, peers: newInbox[*peer](), dials: newInbox[time.Time]()}
	closeServer := s.serve(listener)
	defer func() { s.driver.stop(); closeServer() }()
	e.run(s)
	s.end()
}

// end closes the client and checks what holds after every scenario.
func (s *scenario) end() {
	s.Helper()
	if _, closed := s.ops["close"]; !closed {
		s.close()
		s.succeeded("close")
	}
	settled := map[string]int{}
	s.driver.events().wait(func(all []event) bool {
		clear(settled)
		for _, e := range all {
			if e.Name == "settled" {
				settled[e.ID]++
			}
		}
		for id, what := range s.ops {
			if settled[id] == 0 && what != "subscribe" && what != "stream" { // which may not have begun
				return false
			}
		}
		return true
	}, s.clock.real(time.Minute))
	for id, what := range s.ops {
		if what == "subscribe" || what == "stream" {
			assert.LessOrEqual(s, settled[id], 1, "%s %s settles at most once", what, id)
			continue
		}
		assert.Equal(s, 1, settled[id], "%s %s settles exactly once", what, id)
	}
	assert.True(s, s.driver.stop(), "after close, nothing keeps the process alive")
}

// do executes a command that is an operation, and returns its ID.
func (s *scenario) do(what string, n int, opts any) (id string) {
	s.last++
	id = strconv.Itoa(s.last)
	s.ops[id] = what
	s.command(&command{Do: what, ID: id, N: n}, opts)
	return id
}

func (s *scenario) command(c *command, opts any) {
	if opts != nil {
		text, err := json.Marshal(opts)
		require.NoError(s, err)
		c.Opts = text
	}
	s.driver.do(c)
}

func (s *scenario) create(o clientOptions) {
	o.URL, o.CBOR = s.url, s.cbor
	s.command(&command{Do: "create"}, o)
}

// open creates a client and returns its first connection.
func (s *scenario) open(o clientOptions) *peer {
	s.Helper()
	s.create(o)
	id := s.connect()
	p := s.accept()
	require.Equal(s, s.cbor, p.cbor)
	s.succeeded(id)
	return p
}

// reopened returns the next connection when the client uses it.
func (s *scenario) reopened() *peer {
	s.Helper()
	p := s.accept()
	s.state("open")
	return p
}

func (s *scenario) connect() string   { return s.do("connect", 0, nil) }
func (s *scenario) call(n int) string { return s.do("call", n, nil) }
func (s *scenario) callWithin(n, timeoutMs int) string {
	return s.do("call", n, callOptions{timeoutMs})
}
func (s *scenario) say(n int) string      { return s.do("send", n, nil) }
func (s *scenario) stream(n int) string   { return s.do("stream", n, nil) }
func (s *scenario) abort(id string)       { s.command(&command{Do: "abort", ID: id}, nil) }
func (s *scenario) nextItem(id string)    { s.command(&command{Do: "next", ID: id}, nil) }
func (s *scenario) breakLoop(id string)   { s.command(&command{Do: "break", ID: id}, nil) }
func (s *scenario) unsubscribe(id string) { s.command(&command{Do: "unsubscribe", ID: id}, nil) }
func (s *scenario) close() {
	s.ops["close"] = "close"
	s.command(&command{Do: "close", ID: "close"}, nil)
}

func (s *scenario) subscribe(topic string, o topicOptions) string {
	s.last++
	id := strconv.Itoa(s.last)
	s.ops[id] = "subscribe"
	s.command(&command{Do: "subscribe", ID: id, Topic: topic}, o)
	return id
}

// event returns the next event with a name that matches.
func (s *scenario) event(name string, match func(event) bool) event {
	s.Helper()
	e, ok := s.driver.events().take(func(e event) bool { return e.Name == name && (match == nil || match(e)) }, s.clock.limit)
	if !ok {
		require.FailNow(s, "no "+name, "unexpected events: %+v", s.driver.events().all())
	}
	return e
}

// none fails if an event with a name happens, or has happened, within a time of the client.
func (s *scenario) none(name string, d time.Duration) {
	s.Helper()
	e, ok := s.driver.events().take(func(e event) bool { return e.Name == name }, s.clock.real(d))
	require.False(s, ok, "%+v", e)
}

func (s *scenario) settled(id string) event {
	s.Helper()
	return s.event("settled", func(e event) bool { return e.ID == id })
}

func (s *scenario) succeeded(id string) event {
	s.Helper()
	e := s.settled(id)
	require.Empty(s, e.Code, "%s %s: %+v", s.ops[id], id, e)
	return e
}

func (s *scenario) failed(id, code string) event {
	s.Helper()
	e := s.settled(id)
	require.Equal(s, code, e.Code, "%s %s: %+v", s.ops[id], id, e)
	return e
}

// lost expects that an operation fails because its outcome is unknown.
func (s *scenario) lost(id string) {
	s.Helper()
	require.True(s, s.failed(id, "ABORTED").Unknown, "the server may have handled it")
}

// state expects that the client changes to a state.
func (s *scenario) state(name string) {
	s.Helper()
	s.event("state", func(e event) bool { return e.State == name })
}

// messages expects the next messages that handlers receive.
func (s *scenario) messages(numbers ...int) {
	s.Helper()
	for _, n := range numbers {
		require.Equal(s, n, s.event("message", nil).N)
	}
}

// position returns the position of a subscription.
func (s *scenario) position(id string) event {
	s.Helper()
	s.command(&command{Do: "position", ID: id}, nil)
	return s.event("position", func(e event) bool { return e.ID == id })
}

const documentPath = "../../../docs/client-scenarios.md"

var documentRow = regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \| (.*) \| (.*) \|$`)

// The page and the tests have the same scenarios, and the page has the names of the tests.
func TestScenarios_AreThoseOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(documentPath)
	require.NoError(t, err)
	listed := map[int]string{}
	for _, row := range documentRow.FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		require.NotContains(t, listed, number, "the number occurs twice")
		listed[number] = row[4]
	}
	for _, e := range scenarios() {
		assert.Equal(t, e.name, listed[e.number], "the test in the row of number %d", e.number)
		delete(listed, e.number)
	}
	for _, f := range faultCases {
		assert.Contains(t, slices.Collect(maps.Values(listed)), "faults: "+f.name)
	}
	for number, test := range listed {
		if name, ok := strings.CutPrefix(test, "browser: "); ok {
			assert.True(t, inTypeScriptTests(t, name), "number %d: no file in clients/ts/test has the test %q", number, name)
			continue
		}
		assert.True(t, slices.ContainsFunc(faultCases, func(f faultCase) bool { return "faults: "+f.name == test }), "number %d: %q", number, test)
	}
}

func inTypeScriptTests(t *testing.T, name string) bool {
	t.Helper()
	files, err := os.ReadDir("../../../clients/ts/test")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile("../../../clients/ts/test/" + file.Name())
		require.NoError(t, err)
		if strings.Contains(string(text), name+`"`) {
			return true
		}
	}
	return false
}
