package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Bounds of what a driver prints in one scenario.
const (
	maxLineBytes = 1 << 20
	maxEvents    = 100_000
)

// Times that a driver has, of the runner.
const (
	greetingWait    = time.Minute      // from its start to its first line; a machine may be busy
	defaultStopWait = 10 * time.Second // from the end of its input to its own
)

// A Greeting is the first line of a driver.
type Greeting struct {
	Name     string   `json:"name"`     // "driver"
	Protocol int      `json:"protocol"` // ProtocolVersion
	Client   string   `json:"client"`   // for people
	Scale    int      `json:"scale"`    // how much faster the clock of its client runs than real time; absent: 1
	Levels   []string `json:"levels"`   // what it claims; absent: all
	Formats  []string `json:"formats"`  // json and cbor; absent: json
}

// A Process is a driver in a process of its own, with one line of JSON for each command and event.
type Process struct {
	Greeting Greeting

	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.ReadCloser // closed after a kill, because a child of the driver may keep it open
	log     *Inbox[Event]
	ended   chan struct{}   // closed when the process has ended
	ctx     context.Context //nolint:containedctx // it ends if the driver fails
	fails   context.CancelCauseFunc
	closing atomic.Bool // its input has ended: so may it
	writing sync.Mutex

	stopWait time.Duration // from the end of its input to its own
}

// StartProcess starts a driver, and waits for its greeting. The process is killed when the timeout has passed
// after that.
func StartProcess(command *exec.Cmd, timeout time.Duration) (*Process, error) {
	p := &Process{command: command, log: NewInbox[Event](), ended: make(chan struct{}), stopWait: defaultStopWait}
	p.ctx, p.fails = context.WithCancelCause(context.Background())
	var err error
	if p.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = command.StdoutPipe(); err != nil {
		return nil, err
	}
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		return nil, err
	}
	greeted := make(chan Greeting, 1)
	go p.read(greeted)
	select {
	case p.Greeting = <-greeted:
	case <-p.ctx.Done():
	case <-time.After(min(greetingWait, timeout)):
		p.fail(fmt.Errorf("no greeting within %v; the first line must be %s", min(greetingWait, timeout), sampleGreeting))
	}
	if err := context.Cause(p.ctx); err != nil {
		<-p.ended
		return nil, err
	}
	killer := time.AfterFunc(timeout, func() { p.fail(fmt.Errorf("the scenario has taken longer than the timeout of %v", timeout)) })
	go func() { <-p.ended; killer.Stop() }()
	return p, nil
}

const sampleGreeting = `{"name":"driver","protocol":1,"levels":["minimal"]}`

// check returns what is wrong with a greeting.
func (g *Greeting) check() error {
	if g.Name != "driver" {
		return fmt.Errorf("the first line must be a greeting such as %s", sampleGreeting)
	}
	if g.Protocol != ProtocolVersion {
		return fmt.Errorf("the driver has version %d of the protocol; this runner has %d", g.Protocol, ProtocolVersion)
	}
	if g.Scale < 0 || g.Scale > 100 {
		return fmt.Errorf("scale is %d; it must be 1 to 100", g.Scale)
	}
	for _, level := range g.Levels {
		if !slices.Contains(Levels(), level) {
			return fmt.Errorf("there is no level %q; levels are %s", level, strings.Join(Levels(), ", "))
		}
	}
	g.Scale = max(g.Scale, 1)
	if g.Levels == nil {
		g.Levels = Levels()
	}
	if g.Formats == nil {
		g.Formats = []string{"json"}
	}
	return nil
}

func (p *Process) read(greeted chan<- Greeting) {
	defer close(p.ended)
	lines := bufio.NewScanner(p.stdout)
	lines.Buffer(nil, maxLineBytes)
	for first := true; lines.Scan(); first = false {
		if first {
			var g Greeting
			err := json.Unmarshal(lines.Bytes(), &g)
			if err == nil {
				err = g.check()
			}
			if err != nil {
				p.fail(fmt.Errorf("the driver has printed %.200q: %w", lines.Text(), err))
				break
			}
			greeted <- g
			continue
		}
		if err := p.event(lines.Bytes()); err != nil {
			p.fail(err)
			break
		}
	}
	if err := lines.Err(); err != nil {
		p.fail(fmt.Errorf("the driver has printed a line that is longer than %d bytes, or cannot be read: %w", maxLineBytes, err))
	}
	_ = p.command.Wait()
	if !p.closing.Load() {
		p.fail(fmt.Errorf("the driver has ended (%v) before its standard input", p.command.ProcessState))
	}
}

// event adds an event that the driver has printed.
func (p *Process) event(line []byte) error {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("the driver has printed %.200q, which is no event: %w", line, err)
	}
	if e.Name == "" {
		return fmt.Errorf("the driver has printed %.200q, which has no name", line)
	}
	e.At = time.Now()
	if p.log.Add(e) > maxEvents {
		return fmt.Errorf("the driver has printed more than %d events", maxEvents)
	}
	return nil
}

// fail kills the process for a reason. The first one counts.
func (p *Process) fail(err error) {
	p.fails(err)
	p.kill()
}

func (p *Process) kill() {
	_ = p.command.Process.Kill()
	_ = p.stdout.Close()
}

// Do writes a command. A driver that does not read it is killed after the timeout.
func (p *Process) Do(c *Command) {
	line, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if _, err := p.stdin.Write(append(line, '\n')); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		p.fail(fmt.Errorf("the driver does not read its standard input: %w", err))
	}
}

// Events returns what the driver has printed.
func (p *Process) Events() *Inbox[Event] { return p.log }

// Context ends when the driver has failed.
func (p *Process) Context() context.Context { return p.ctx }

// Stop ends the input. The process must end by itself, unless the client has a timer or a socket left; otherwise it is killed.
func (p *Process) Stop() bool {
	p.closing.Store(true)
	_ = p.stdin.Close()
	select {
	case <-p.ended:
		return p.ctx.Err() == nil
	case <-time.After(p.stopWait):
		p.fail(fmt.Errorf("a timer or a connection keeps it alive %v after the end of its standard input", p.stopWait))
		<-p.ended
		return false
	}
}
