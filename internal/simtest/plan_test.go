package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A mood says which steps a plan has, and how small the limits of the application are.
type mood string

const (
	calm  mood = "calm"  // no faults but graceful shutdowns
	mixed mood = "mixed" // all steps
	hot   mood = "hot"   // all steps, with short queues, tight limits and storms
)

// A plan is what happens in a simulation. Everything in it is drawn before it begins.
type plan struct {
	Seed    uint64 // of delays and of the choices of the product
	Mood    mood
	Nodes   int
	Clients []clientPlan
	Raw     []rawPlan
	Steps   []step
}

// A clientPlan is how a client is configured.
type clientPlan struct {
	User     string
	Resume   bool // asks for a session
	Fallback bool // over plain HTTP
	CBOR     bool
	Pacing   bool

	SlowHandlers bool // of publications
}

// A step is one action. Which fields mean something depends on Do.
type step struct {
	Wait   time.Duration // before the step
	Do     string        // the name of a verb
	Client int
	Raw    int // the index of a raw client
	Node   int
	Topic  string
	N      int
	For    time.Duration
}

// A verb is a kind of step.
type verb struct {
	name   string
	weight [3]int                 // how often in calm, mixed and hot plans
	draw   func(d *draw, s *step) // chooses the arguments
	run    func(w *world, s step) // must not fail if the state does not permit the step
}

// A draw chooses the arguments of steps.
type draw struct {
	*rand.Rand
	plan  *plan
	verbs []verb
}

func (d *draw) client(s *step) { s.Client = d.IntN(len(d.plan.Clients)) }
func (d *draw) node(s *step)   { s.Node = 1 + d.IntN(d.plan.Nodes) }

// topic chooses one of a few topics of the given families.
func (d *draw) topic(s *step, families ...string) {
	s.Topic = fmt.Sprintf("%s/%d", families[d.IntN(len(families))], 1+d.IntN(2))
}

// span chooses a duration, of which most are short.
func (d *draw) span(longest time.Duration) time.Duration {
	if d.IntN(4) > 0 {
		longest /= 10
	}
	return time.Duration(d.Int64N(int64(longest))).Round(time.Millisecond)
}

// newPlan returns the plan of a seed.
func newPlan(seed uint64) plan {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 2)), verbs: verbs()} //nolint:gosec // not secret
	p := plan{Seed: seed, Mood: mixed, Nodes: 2 + d.IntN(3)}
	switch {
	case seed%4 == 0:
		p.Mood = calm
	case seed%3 == 0:
		p.Mood = hot
	}
	d.plan = &p
	for range 3 + d.IntN(8) {
		c := clientPlan{User: fmt.Sprintf("user%d", 1+d.IntN(4)), Resume: d.IntN(3) > 0, Fallback: d.IntN(5) == 0, Pacing: d.IntN(4) == 0, SlowHandlers: d.IntN(4) == 0}
		c.CBOR = !c.Fallback && d.IntN(5) == 0
		p.Clients = append(p.Clients, c)
	}
	p.Raw = d.rawPlans()
	for range 60 + d.IntN(241) {
		p.Steps = append(p.Steps, d.step())
	}
	return p
}

// step draws a step.
func (d *draw) step() step {
	column := slices.Index([]mood{calm, mixed, hot}, d.plan.Mood)
	total := 0
	for _, v := range d.verbs {
		total += v.weight[column]
	}
	pick := d.IntN(total)
	for _, v := range d.verbs {
		if pick -= v.weight[column]; pick < 0 {
			s := step{Wait: d.span(3 * time.Second), Do: v.name}
			if v.draw != nil {
				v.draw(d, &s)
			}
			return s
		}
	}
	panic("unreachable")
}

// String returns the plan as the argument of simulate.
func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan{\n\tSeed: %d, Mood: %q, Nodes: %d,\n\tClients: []clientPlan{\n", p.Seed, p.Mood, p.Nodes)
	for _, c := range p.Clients {
		fmt.Fprintf(&b, "\t\t%s,\n", fields("", fmt.Sprintf("%#v", c)))
	}
	b.WriteString("\t},\n\tRaw: []rawPlan{\n")
	for _, r := range p.Raw {
		fmt.Fprintf(&b, "\t\t%s,\n", fields("", fmt.Sprintf("%#v", r)))
	}
	b.WriteString("\t},\n\tSteps: []step{\n")
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "\t\t%s,\n", s)
	}
	b.WriteString("\t},\n}")
	return b.String()
}

// fields returns a literal without its type and its zero fields.
func fields(wait, literal string) string {
	inside := literal[strings.Index(literal, "{")+1 : len(literal)-1]
	kept := []string{}
	if wait != "" {
		kept = append(kept, wait)
	}
	for f := range strings.SplitSeq(inside, ", ") {
		name, value, _ := strings.Cut(f, ":")
		if value != "0" && value != `""` && value != "false" {
			kept = append(kept, name+": "+value)
		}
	}
	return "{" + strings.Join(kept, ", ") + "}"
}

func (s step) String() string {
	literal := func(name string, d time.Duration) string {
		if d == 0 {
			return ""
		}
		return fmt.Sprintf("%s: %d * time.Millisecond", name, d.Milliseconds())
	}
	wait, span := literal("Wait", s.Wait), literal("For", s.For)
	s.Wait, s.For = 0, 0
	text := fields(wait, fmt.Sprintf("%#v", s))
	if span != "" {
		text = strings.TrimSuffix(text, "}") + ", " + span + "}"
	}
	return text
}
