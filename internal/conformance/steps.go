package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// verbs are the steps of scenarios. docs/writing-a-client.md lists them.
func verbs() map[string]func(*run, *arguments) error {
	return map[string]func(*run, *arguments) error{
		"client": (*run).client, "open": (*run).open,
		"event": (*run).event, "none": (*run).none, "succeeds": (*run).succeeds, "fails": (*run).fails, "lost": (*run).lost,
		"settles": (*run).settles, "reported": (*run).reported, "state": (*run).state, "messages": (*run).messages,
		"position": (*run).position, "allowed": (*run).allowed, "eventually": (*run).eventually,

		"server": (*run).configure, "accept": (*run).accepts, "no-connection": (*run).noConnection, "on": (*run).nothing,
		"expect": (*run).expect, "find": (*run).find, "refuse": (*run).refuses, "increasing": (*run).increasing, "sum": (*run).sum,
		"reply": (*run).replies, "answer": (*run).answer, "ack": (*run).ack, "reject": (*run).reject, "item": (*run).item,
		"push": (*run).push, "publish": (*run).publish, "raw": (*run).raw,
		"cut": (*run).cut, "mute": (*run).mute, "shut": (*run).shut, "ended": (*run).hasEnded,

		"wait": (*run).wait, "mark": (*run).mark, "elapsed": (*run).elapsed, "distinct": (*run).distinct,
		"for": (*run).repeat, "during": (*run).during, "if": (*run).optional,
	}
}

// nothing rejects `on old` without a step.
func (r *run) nothing(*arguments) error {
	panic(scriptError("a step follows the name of the connection"))
}

// client makes the driver execute a command: `client call 1 as a {"timeoutMs":1000}`.
func (r *run) client(a *arguments) error {
	what := a.word()
	opts := func() map[string]any { return a.object() }
	id := a.as
	if id == "" {
		r.last++
		id = "op" + strconv.Itoa(r.last)
	}
	switch what {
	case "create":
		o := a.pattern()
		o["url"] = r.config.URL
		if r.config.CBOR {
			o["cbor"] = true
		}
		r.do(&Command{Do: what}, o)
	case "connect":
		r.command(what, id, &Command{}, nil)
	case "call", "send", "stream":
		n := a.number()
		r.command(what, id, &Command{N: n}, opts())
	case "subscribe":
		topic := a.word()
		r.command(what, id, &Command{Topic: topic}, opts())
	case "next", "break", "abort", "unsubscribe":
		r.do(&Command{Do: what, ID: a.word()}, nil)
	case "close":
		r.command(what, "close", &Command{}, nil)
	default:
		panic(scriptError("unknown command " + what))
	}
	return nil
}

// open creates a client, and expects that it connects and can be used.
func (r *run) open(a *arguments) error {
	o := a.pattern()
	o["url"] = r.config.URL
	if r.config.CBOR {
		o["cbor"] = true
	}
	r.do(&Command{Do: "create"}, o)
	r.last++
	id := "op" + strconv.Itoa(r.last)
	r.command("connect", id, &Command{}, nil)
	if err := r.accepts(&arguments{as: a.as}); err != nil {
		return err
	}
	return r.settlement(id, map[string]any{"code": ""})
}

// take returns the next event that matches.
func (r *run) take(what string, match func(Event) bool) (Event, error) {
	e, ok := r.driver.Events().Take(match, r.config.Limit, r.stop())
	if !ok {
		return e, fmt.Errorf("no %s; the driver has reported %s", what, r.unexpected())
	}
	return e, nil
}

// unexpected returns the events that no step has taken.
func (r *run) unexpected() string {
	waiting := r.driver.Events().Waiting()
	if len(waiting) == 0 {
		return "nothing else"
	}
	var all []string
	for _, e := range waiting[max(0, len(waiting)-5):] {
		all = append(all, show(generic(e)))
	}
	return strings.Join(all, ", ")
}

// match compares an event with a pattern, and gives it a name.
func (r *run) match(e Event, pattern map[string]any, as string) error {
	value := generic(e)
	if as != "" {
		r.bound[as], r.times[as] = value, e.At
	}
	if problem := mismatch("", value, pattern); problem != "" {
		return fmt.Errorf("%s, in %s", problem, show(value))
	}
	return nil
}

// event expects that the next event with one of the names matches: `event message|loss {"n":1} as e`.
func (r *run) event(a *arguments) error {
	text := a.word()
	names := strings.Split(text, "|")
	e, err := r.take(text, func(e Event) bool { return slices.Contains(names, e.Name) })
	if err != nil {
		return err
	}
	return r.match(e, a.pattern(), a.as)
}

// none expects that no event with a name happens, or has happened, within a time of the client: `none loss 1s`.
func (r *run) none(a *arguments) error {
	name := a.word()
	if e, ok := r.driver.Events().Take(func(e Event) bool { return e.Name == name }, r.clock.real(a.duration()), r.stop()); ok {
		return fmt.Errorf("the driver has reported %s", show(generic(e)))
	}
	return r.broke()
}

func (r *run) settlement(id string, pattern map[string]any) error {
	if r.ops[id] == "" {
		panic(scriptError("no operation has the name " + id))
	}
	e, err := r.take(fmt.Sprintf("end of %s %s", r.ops[id], id), func(e Event) bool { return e.Name == "settled" && e.ID == id })
	if err != nil {
		return err
	}
	return r.match(e, pattern, "")
}

// succeeds expects that an operation succeeds: `succeeds a`, or `succeeds a {"n":1}`.
func (r *run) succeeds(a *arguments) error {
	id, pattern := a.word(), a.pattern()
	pattern["code"] = ""
	return r.settlement(id, pattern)
}

// fails expects that an operation fails, with a code or any one: `fails a CANCELLED` or `fails a *`.
func (r *run) fails(a *arguments) error {
	id, code, pattern := a.word(), a.word(), a.pattern()
	pattern["code"] = code
	if code == "*" {
		pattern["code"] = map[string]any{"$some": true}
	}
	return r.settlement(id, pattern)
}

// lost expects that an operation fails because its outcome is unknown.
func (r *run) lost(a *arguments) error {
	return r.settlement(a.word(), map[string]any{"code": "ABORTED", "unknown": true})
}

// settles expects that an operation ends, in whatever way.
func (r *run) settles(a *arguments) error { return r.settlement(a.word(), nil) }

// reported expects that a failure is the end of an operation, or an event: `reported a {"code":"INVALID_ARGUMENT"}`.
func (r *run) reported(a *arguments) error {
	id, pattern := a.word(), a.pattern()
	e, err := r.take("end of "+id, func(e Event) bool { return e.Name == "settled" && e.ID == id })
	if err == nil && e.Code == "" { // handed over to the connection
		e, err = r.take("error", func(e Event) bool { return e.Name == "error" })
	}
	if err != nil {
		return err
	}
	return r.match(e, pattern, "")
}

// state expects that the client changes to a state.
func (r *run) state(a *arguments) error {
	name := a.word()
	_, err := r.take("change to the state "+name, func(e Event) bool { return e.Name == "state" && e.State == name })
	return err
}

// messages expects the next messages that handlers receive: `messages 18 19`.
func (r *run) messages(a *arguments) error {
	for a.more() {
		n := a.number()
		e, err := r.take("message "+strconv.Itoa(n), func(e Event) bool { return e.Name == "message" })
		if err == nil {
			err = r.match(e, map[string]any{"n": int64(n)}, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// position asks for the position of a subscription: `position a {"offset":18}`.
func (r *run) position(a *arguments) error {
	id := a.word()
	r.do(&Command{Do: "position", ID: id}, nil)
	e, err := r.take("position", func(e Event) bool { return e.Name == "position" && e.ID == id })
	if err != nil {
		return err
	}
	return r.match(e, a.pattern(), "")
}

// allowed asks in how many milliseconds a message of a type is allowed: `allowed SAY 0..100`.
func (r *run) allowed(a *arguments) error {
	typ := a.word()
	from, to := a.interval()
	r.do(&Command{Do: "allowed", ID: typ}, nil)
	e, err := r.take("allowed", func(e Event) bool { return e.Name == "allowed" })
	if err != nil {
		return err
	}
	return r.match(e, map[string]any{"ms": map[string]any{"$min": int64(from), "$max": int64(to)}}, "")
}

// eventually repeats a step until it succeeds: `eventually position a {"offset":19}`.
func (r *run) eventually(a *arguments) error {
	verb, rest := a.word(), a.tokens
	a.tokens = nil
	for end := time.Now().Add(r.config.Limit); ; time.Sleep(r.clock.real(20 * time.Millisecond)) {
		err := verbs()[verb](r, &arguments{tokens: slices.Clone(rest)})
		if err == nil || time.Now().After(end) || r.broke() != nil {
			return err
		}
	}
}
