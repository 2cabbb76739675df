package conformance

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse_RejectsMistakes(t *testing.T) {
	for text, problem := range map[string]string{
		"  open\n":                            "a step must follow the title",
		"scenario 1 nowhere: a\n":             "with a level of minimal",
		"scenario 1 minimal\n":                "a title is",
		"scenario 1 minimal: a\n  opne\n":     `unknown step "opne"`,
		"scenario 1 minimal: a\n  end\nend\n": "there is no block to end",
	} {
		_, err := parse("a.txt", text)
		assert.ErrorContains(t, err, problem, text)
		assert.ErrorContains(t, err, "a.txt:", text)
	}
}

func TestParse_NestsBlocks(t *testing.T) {
	all, err := parse("a.txt", "# comment\nscenario 7 topics: a: b\n\n  for n in 0..1\n    if ASK 1s as f\n      answer f\n    end\n    cut\n  end\n  accept\n")
	require.NoError(t, err)
	require.Len(t, all, 1)
	s := all[0]
	assert.Equal(t, []any{7, "topics", "a: b", 2}, []any{s.Number, s.Level, s.Name, len(s.steps)})
	assert.Len(t, s.steps[0].block, 2)
	assert.Equal(t, "answer f", s.steps[0].block[0].block[0].text)
	assert.Equal(t, "a.txt:10", s.steps[1].place)
}

func TestScenarios_AreNumberedOnceAndHaveEveryLevel(t *testing.T) {
	numbers, levels := map[int]bool{}, map[string]int{}
	for _, s := range Scenarios() {
		assert.False(t, numbers[s.Number], "the number %d occurs twice", s.Number)
		assert.NotEmpty(t, s.steps, s.Name)
		numbers[s.Number] = true
		levels[s.Level]++
	}
	for _, level := range Levels() {
		assert.Positive(t, levels[level], level)
	}
}

func value(t *testing.T, text string) any {
	t.Helper()
	all, err := tokens(text)
	require.NoError(t, err)
	return all[0].value
}

func TestMismatch(t *testing.T) {
	for _, c := range []struct{ value, pattern, problem string }{
		{`{"a":1,"b":2}`, `{"a":1}`, ""},
		{`{"a":1}`, `{"a":2}`, "a is 1, must be 2"},
		{`{"a":"1"}`, `{"a":1}`, `a is "1", must be 1`},
		{`{}`, `{"a":0,"b":"","c":false,"d":[],"e":{"f":0}}`, ""},
		{`{}`, `{"a":true}`, "a is false, must be true"},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`, ""},
		{`{"a":[{"b":1}]}`, `{"a":[]}`, "a has 1 items, must have 0"},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":2}]}`, "a.0.b is 1, must be 2"},
		{`{"a":5}`, `{"a":{"$min":5,"$max":5}}`, ""},
		{`{"a":5}`, `{"a":{"$min":6}}`, `a is 5, must be {"$min":6}`},
		{`{"a":5}`, `{"a":{"$max":4}}`, `a is 5, must be {"$max":4}`},
		{`{"a":"a secret"}`, `{"a":{"$not":"secret"}}`, `a is "a secret", must be {"$not":"secret"}`},
		{`{"a":""}`, `{"a":{"$some":true}}`, `a is "", must be {"$some":true}`},
		{`{"a":"x"}`, `{"a":{"$absent":true}}`, `a is "x", must be {"$absent":true}`},
		{`{}`, `{"a":{"$absent":true}}`, ""},
	} {
		assert.Equal(t, c.problem, mismatch("", value(t, c.value), value(t, c.pattern)), "%s with %s", c.value, c.pattern)
	}
}

func TestExpand(t *testing.T) {
	bound := map[string]any{"n": int64(3), "f": map[string]any{"meta": map[string]any{"id": "x", "credit": int64(16)}}}
	text, err := expand(`a ${n} ${n+1} ${f.meta.credit/2} "${f.meta.id}" $ws:${n-3} ${f.meta}`, bound)
	require.NoError(t, err)
	assert.Equal(t, `a 3 4 8 "x" $ws:0 {"credit":16,"id":"x"}`, text)
	for _, wrong := range []string{"${m}", "${f.meta.none}", "${f.meta.id+1}", "${n.x}"} {
		_, err := expand(wrong, bound)
		assert.Error(t, err, wrong)
	}
}

func TestSchema_FindsInvalidMessages(t *testing.T) {
	for text, problem := range map[string]string{
		`{"type":"$ws:subscribe","meta":{"correlationId":"a"},"payload":{"topic":"room/go"}}`: "",
		`{"type":"SAY","payload":[1]}`: "",
		`{"type":"$ws:hello"}`:         "",
		`{"type":"$ws:subscribe","payload":{"topic":"room/go","since":1}}`:                   `payload has the unknown member "since"`,
		`{"type":"$ws:subscribe","payload":{"topic":1}}`:                                     "payload.topic must be a string",
		`{"type":"$ws:subscribe","payload":{"topic":""}}`:                                    "payload.topic must have 1 to 256 bytes",
		`{"type":"$ws:subscribe","payload":{}}`:                                              `payload must have the member "topic"`,
		`{"type":"$ws:subscribe"}`:                                                           "payload must be an object",
		`{"type":"$ws:resume","payload":{"token":"a","topics":[{"topic":"a","offset":-1}]}}`: "payload.topics.0.offset must be an integer",
		`{"type":"$ws:abort","payload":{}}`:                                                  "$ws:abort has no payload",
		`{"type":"$ws:welcome","payload":{}}`:                                                "a client does not send $ws:welcome",
		`{"type":"$ws:none"}`:                                                                "the protocol has no message $ws:none",
		`{"type":"SAY","meta":{"id":"a"}}`:                                                   `meta has the unknown member "id"`,
		`{"type":"SAY","meta":{"topic":"a"}}`:                                                `meta has the unknown member "topic"`,
		`{"type":"SAY","meta":{"timeoutMs":0}}`:                                              "meta.timeoutMs must be at least 1",
		`{"type":"SAY","meta":{"ack":1}}`:                                                    "meta.ack must be true or false",
		`{"type":"SAY","meta":{"correlationId":"` + strings.Repeat("x", 129) + `"}}`:         "meta.correlationId must have 0 to 128 bytes",
		`{"type":"SAY","meta":[]}`:                                                           "meta must be an object",
		`{"type":"SAY","id":1}`:                                                              `the envelope has the unknown member "id"`,
		`{"type":""}`:                                                                        "type must be a string",
	} {
		message, _ := value(t, text).(map[string]any)
		if found := readSchema().checkMessage("client", message); problem == "" {
			assert.Empty(t, found, text)
		} else {
			assert.Contains(t, found, problem, text)
		}
	}
}

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

// A driver that does not keep to the protocol fails with a reason, and holds nothing up.
func TestProcess_DriversThatAreWrong(t *testing.T) {
	const greeting = `echo '{"name":"driver","protocol":1}'; `
	for script, problem := range map[string]string{
		"true":                                  "has ended (exit status 0)",
		"exit 3":                                "has ended (exit status 3)",
		"sleep 60":                              "no greeting within",
		"echo hi":                               `has printed "hi"`,
		"echo '{}'":                             "must be a greeting such as",
		`echo '{"name":"driver","protocol":2}'`: "has version 2 of the protocol; this runner has 1",
		`echo '{"name":"driver","protocol":1,"scale":-1}'`:           "scale is -1",
		`echo '{"name":"driver","protocol":1,"levels":["x"]}'`:       `there is no level "x"`,
		"head -c 2000000 /dev/zero; sleep 60":                        "longer than 1048576 bytes",
		greeting + "exit 4":                                          "has ended (exit status 4)",
		greeting + "echo hi; sleep 60":                               `has printed "hi", which is no event`,
		greeting + "echo '{}'; sleep 60":                             "has no name",
		greeting + `yes '{"name":"state"}'`:                          "more than 100000 events",
		greeting + "sleep 60 & wait":                                 "longer than the timeout",
		greeting + `echo '{"name":"settled","id":7}'; exec sleep 60`: "no event",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			timeout := 20 * time.Second
			if strings.Contains(problem, "timeout") || strings.Contains(problem, "within") {
				timeout = 200 * time.Millisecond
			}
			d, err := StartProcess(shell(script), timeout)
			if err == nil {
				<-d.Context().Done()
				err = context.Cause(d.Context())
				assert.False(t, d.Stop())
			}
			assert.ErrorContains(t, err, problem)
		})
	}
}

func TestProcess_DriverThatDoesNotEndIsKilled(t *testing.T) {
	d, err := StartProcess(shell(`echo '{"name":"driver","protocol":1}'; exec sleep 60`), 20*time.Second)
	require.NoError(t, err)
	d.stopWait = 10 * time.Millisecond
	assert.False(t, d.Stop())
	assert.EqualError(t, context.Cause(d.Context()), "a timer or a connection keeps it alive 10ms after the end of its standard input")
}

// A scenario with a driver that does nothing fails at the first step that waits, and one with a broken driver says so.
func TestRun_ReportsTheFirstDifference(t *testing.T) {
	all, err := parse("a.txt", "scenario 1 minimal: a\n  client create\n  client call 1 as a\n  succeeds a\n  cut\n")
	require.NoError(t, err)
	for script, problem := range map[string]string{
		`cat > /dev/null`: "no end of call a; the driver has reported nothing else",
		`read a; read b; echo '{"name":"settled","id":"a","code":"X"}'; cat > /dev/null`: `code is "X", must be ""`,
		`read a; read b; echo oops`: `the driver has failed: the driver has printed "oops"`,
	} {
		d, err := StartProcess(shell(`echo '{"name":"driver","protocol":1}'; `+script), 20*time.Second)
		require.NoError(t, err)
		f := Run(all[0], d, Config{Listener: listen(t), URL: "ws://127.0.0.1:1/", Scale: 1, Limit: 200 * time.Millisecond})
		require.NotNil(t, f, script)
		assert.Equal(t, "a.txt:4: succeeds a", f.Place+": "+f.Step)
		assert.Contains(t, f.Problem, problem)
		assert.Contains(t, strings.Join(f.Transcript, "\n"), `R→D {"do":"call","id":"a","n":1}`)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}
