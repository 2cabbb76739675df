package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/codec/cbor"
)

// A Config says where and how a scenario runs.
type Config struct {
	Listener net.Listener  // of the server; it is closed at the end
	URL      string        // by which the client reaches it
	CBOR     bool          // the client uses CBOR
	Scale    int           // how much faster the clock of the client runs than that of the runner
	Limit    time.Duration // of the runner, for what must happen
}

// A Failure is the first difference between what a client must do and what it has done.
type Failure struct {
	Place      string   // file and line of the step
	Step       string   // the step
	Problem    string   // what came instead
	Transcript []string // commands (R→D), events (D→R) and messages (C→S, S→C) up to then, with the time of the client
}

// Error returns the step and the problem.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s\n%s", f.Place, f.Step, f.Problem) }

// A run executes one scenario.
type run struct {
	*server

	config Config
	driver Driver
	peer   *peer // of the steps that name no other
	bound  map[string]any
	frames map[string]*frame
	peerOf map[string]*peer
	times  map[string]time.Time
	sets   map[string]map[string]bool
	ops    map[string]string // what each operation is
	last   int               // operation without a name
}

// Run executes a scenario with a driver, which it stops.
func Run(s *Scenario, d Driver, c Config) *Failure {
	now := clock{start: time.Now(), scale: c.Scale}
	r := &run{
		server: &server{
			transcript: &transcript{clock: now}, clock: now, schema: readSchema(), codec: cbor.New(nil), peers: NewInbox[*peer](), dials: NewInbox[time.Time](), broken: NewInbox[string](),
		},
		config: c, driver: d, bound: map[string]any{}, frames: map[string]*frame{}, peerOf: map[string]*peer{}, times: map[string]time.Time{},
		sets: map[string]map[string]bool{}, ops: map[string]string{},
	}
	closeServer := r.serve(c.Listener)
	defer func() { d.Stop(); closeServer() }()
	if f := r.block(s.steps); f != nil {
		return f
	}
	return r.end()
}

// block executes steps.
func (r *run) block(steps []step) *Failure {
	for i := range steps {
		s := &steps[i]
		err := r.step(s)
		if inner, ok := err.(*Failure); ok { //nolint:errorlint // of a step inside this one
			return inner
		}
		if err == nil {
			err = r.violated()
		}
		if err != nil {
			return r.failure(s.place, s.text, err)
		}
	}
	return nil
}

func (r *run) failure(place, text string, err error) *Failure {
	if broken := r.broke(); broken != nil {
		err = fmt.Errorf("the driver has failed: %w", broken)
	} else if violated := r.violated(); violated != nil {
		err = violated
	}
	return &Failure{Place: place, Step: text, Problem: err.Error(), Transcript: r.withEvents()}
}

// stop is closed when the driver has failed.
func (r *run) stop() <-chan struct{} { return r.driver.Context().Done() }

// broke says why the driver has failed, or returns nil.
func (r *run) broke() error { return context.Cause(r.driver.Context()) }

// violated returns an error if a message was invalid.
func (r *run) violated() error {
	if all := r.broken.Waiting(); len(all) > 0 {
		return fmt.Errorf("%s", all[0])
	}
	return nil
}

// withEvents returns the transcript with the events of the driver, in the order of their times.
func (r *run) withEvents() []string {
	lines := r.transcript.all()
	for _, e := range r.driver.Events().All() {
		text, _ := json.Marshal(e)
		lines = append(lines, fmt.Sprintf("%8.3fs D→R %s", r.clock.between(r.clock.start, e.At).Seconds(), text))
	}
	seconds := func(line string) float64 {
		at, _ := strconv.ParseFloat(strings.TrimSpace(line[:strings.IndexByte(line, 's')]), 64)
		return at
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		switch x, y := seconds(a), seconds(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return lines[max(0, len(lines)-maxTranscript):]
}

func (r *run) step(s *step) (err error) {
	defer func() {
		if p, ok := recover().(scriptError); ok {
			err = fmt.Errorf("the scenario is invalid: %s", p)
		}
	}()
	text, err := expand(s.text, r.bound)
	if err != nil {
		return err
	}
	verb, rest, _ := strings.Cut(text, " ")
	all := []token{{text: rest}}
	if verb != "raw" {
		if all, err = tokens(rest); err != nil {
			return err
		}
	}
	a := &arguments{tokens: all, block: s.block}
	if i := slices.IndexFunc(all, func(t token) bool { return t.text == "as" }); i >= 0 && i+1 < len(all) {
		a.as = all[i+1].text
		a.tokens = slices.Delete(all, i, i+2)
	}
	p := r.peer
	if verb == "on" {
		name := a.word()
		if r.peer = r.peerOf[name]; r.peer == nil {
			r.peer = p
			return fmt.Errorf("no connection has the name %q", name)
		}
		defer func() { r.peer = p }()
		verb = a.word()
	}
	if err := verbs()[verb](r, a); err != nil {
		return err
	}
	if a.more() {
		return fmt.Errorf("the scenario is invalid: %q does not belong to the step", a.tokens[0].text)
	}
	return nil
}

// end closes the client and checks what holds after every scenario.
func (r *run) end() *Failure {
	const place, text = "end", "after every scenario, the client is closed, and every operation has settled exactly once"
	if r.ops["close"] == "" {
		r.command("close", "close", &Command{}, nil)
	}
	settled := map[string]int{}
	r.driver.Events().Wait(func(all []Event) bool {
		clear(settled)
		for _, e := range all {
			if e.Name == "settled" {
				settled[e.ID]++
			}
		}
		for id, what := range r.ops {
			if settled[id] == 0 && !mayNotBegin(what) {
				return false
			}
		}
		return true
	}, max(r.clock.real(time.Minute), r.config.Limit/3), r.stop())
	for id, what := range r.ops {
		if settled[id] > 1 || settled[id] == 0 && !mayNotBegin(what) {
			return r.failure(place, text, fmt.Errorf("%s %s has settled %d times", what, id, settled[id]))
		}
	}
	if err := r.broke(); err != nil {
		return r.failure(place, text, err)
	}
	if !r.driver.Stop() {
		return r.failure(place, "after close, nothing keeps the process alive", fmt.Errorf("the driver has not ended after the end of its standard input"))
	}
	if err := r.violated(); err != nil {
		return r.failure(place, text, err)
	}
	return nil
}

// mayNotBegin reports whether an operation need not settle.
func mayNotBegin(what string) bool { return what == "subscribe" || what == "stream" }

// command executes a command that is an operation.
func (r *run) command(what, id string, c *Command, opts map[string]any) {
	if r.ops[id] != "" {
		panic(scriptError(fmt.Sprintf("two operations have the name %s", id)))
	}
	r.ops[id] = what
	c.Do, c.ID = what, id
	r.do(c, opts)
}

func (r *run) do(c *Command, opts map[string]any) {
	if opts != nil {
		c.Opts, _ = json.Marshal(opts)
	}
	text, _ := json.Marshal(c)
	r.transcript.note("R→D", "%s", text)
	r.driver.Do(c)
}
