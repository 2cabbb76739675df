package conformance

import (
	"fmt"
	"time"
)

// wait waits for a time of the client: `wait 6s`.
func (r *run) wait(a *arguments) error {
	select {
	case <-time.After(r.clock.real(a.duration())):
	case <-r.stop():
	}
	return r.broke()
}

// mark gives the current time a name.
func (r *run) mark(a *arguments) error { r.times[a.word()] = time.Now(); return nil }

// at returns the time of a name, of now, or of a handshake: dial1 is the first one.
func (r *run) at(name string) time.Time {
	if name == "now" {
		return time.Now()
	}
	if at, ok := r.times[name]; ok {
		return at
	}
	var n int
	if _, err := fmt.Sscanf(name, "dial%d", &n); err == nil && n >= 1 && n <= len(r.dials.All()) {
		return r.dials.All()[n-1]
	}
	panic(scriptError("nothing has the name " + name))
}

// elapsed compares the time of the client between two names with a range: `elapsed start now 2s..4s`.
func (r *run) elapsed(a *arguments) error {
	from, to := a.word(), a.word()
	low, high := a.span()
	if d := r.clock.between(r.at(from), r.at(to)); d < low || d >= high {
		return fmt.Errorf("from %s to %s it took %v of the client's time", from, to, d.Round(time.Millisecond))
	}
	return nil
}

// distinct expects that a value is not in a set, and adds it: `distinct ids ${f.meta.correlationId}`.
func (r *run) distinct(a *arguments) error {
	name, value := a.word(), a.word()
	if r.sets[name] == nil {
		r.sets[name] = map[string]bool{}
	}
	if r.sets[name][value] {
		return fmt.Errorf("%s occurs twice", value)
	}
	r.sets[name][value] = true
	return nil
}

// repeat executes a block for each integer of a range: `for n in 0..5`.
func (r *run) repeat(a *arguments) error {
	name, in := a.word(), a.word()
	from, to := a.interval()
	if in != "in" {
		panic(scriptError("a loop is `for n in 0..5`"))
	}
	for n := from; n <= to; n++ {
		r.bound[name] = int64(n)
		if f := r.block(a.block); f != nil {
			return f
		}
	}
	return nil
}

// during repeats a block until a time of the client has passed: `during 10s at most 50`, which fails after more repetitions.
func (r *run) during(a *arguments) error {
	d, _, _, most := a.duration(), a.word(), a.word(), a.number()
	start := time.Now()
	for n := 1; r.clock.between(start, time.Now()) < d; n++ {
		if n > most {
			return fmt.Errorf("repeated more than %d times", most)
		}
		if f := r.block(a.block); f != nil {
			return f
		}
	}
	return nil
}

// optional executes a block if a message of a type arrives within a time of the client: `if ASK 1s as f`.
func (r *run) optional(a *arguments) error {
	typ := a.word()
	f, ok := r.connection().frames.Take(func(f *frame) bool { return f.typ == typ }, r.clock.real(a.duration()), r.stop())
	if !ok {
		return nil
	}
	r.bind(f, a.as)
	if f := r.block(a.block); f != nil {
		return f
	}
	return nil
}
