package presence_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic/presence"
)

// A room passes events to the members of a topic, and renders what follows from them. Connections are strings.
type room struct {
	presence.Members[string]

	held   map[string]presence.Held // by ConnID
	names  map[*present.Absence]string
	closed map[string]*present.Absence
}

func newRoom() *room {
	r := &room{held: map[string]presence.Held{}, names: map[*present.Absence]string{}, closed: map[string]*present.Absence{}}
	r.Track()
	return r
}

// announced parses "ID stays info", of which the last ones may be left out.
func announced(t testing.TB, fields []string) (a presence.Announced) {
	a.Member = protocol.Member{ConnID: fields[0], UserID: "u-" + fields[0]}
	if len(fields) > 1 {
		stays, err := time.ParseDuration(fields[1])
		require.NoError(t, err)
		a.Stays = stays
	}
	if len(fields) > 2 {
		a.Info = fields[2]
	}
	return a
}

// remote parses "node ID staysMs ended", of which the last ones may be left out.
func remote(fields []string) broker.Member {
	m := broker.Member{Node: fields[0], ID: fields[1], Data: fmt.Sprintf(`{"userId":"u-%s"}`, fields[1])}
	if len(fields) > 2 {
		m.ID += " " + fields[2]
	}
	if len(fields) > 3 {
		m.Data = fmt.Sprintf(`{"userId":"u-%s","ended":true}`, fields[1])
	}
	return m
}

// do passes an event on, which begins with its name.
func (r *room) do(t testing.TB, event string) (e presence.Effects) {
	words := strings.Fields(event)
	name, args := words[0], words[1:]
	switch name {
	case "join":
		return r.Join(args[0], announced(t, args[1:]))
	case "rejoin":
		return r.Rejoin(args[0], announced(t, args[1:]))
	case "leave": // for good
		return r.Leave(args[0], true)
	case "move": // another node may have the client
		return r.Leave(args[0], false)
	case "close", "close-moved": // the client may come back
		e, mayStay := r.Close(args[0], name == "close-moved")
		if mayStay {
			away := new(present.Absence)
			r.names[away], r.closed[args[0]] = "connection "+args[0], away
			r.Stay(args[0], away)
		}
		return e
	case "announced":
		return r.Changed(remote(args), true)
	case "withdrawn":
		return r.Changed(remote(args), false)
	case "malformed":
		return r.Changed(broker.Member{Node: args[0], ID: strings.ReplaceAll(args[1], "_", " "), Data: args[2]}, true)
	case "time": // of a member that is, or was, held
		if h, ok := r.held[args[0]]; ok {
			e = r.HoldEnded(h.Member, h.Absence)
		}
		return e
	case "untrack":
		e, _ := r.Untrack()
		return e
	}
	t.Fatalf("unknown event %q", event)
	return e
}

// render returns effects as text, and keeps what is held.
func (r *room) render(e presence.Effects) string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, c := range e.Changes {
		add("%s%s%s", map[bool]string{true: "+", false: "-"}[c.Joined], c.Member.ConnID, strings.TrimSuffix(":"+c.Member.Info, ":"))
	}
	if e.NodeIsBack != "" {
		add("is back %s", e.NodeIsBack)
	}
	for _, a := range e.Released {
		add("release %s", r.names[a])
	}
	for _, h := range e.Held {
		id := h.Member.ConnID
		r.held[id], r.names[h.Absence] = h, id
		add("hold %s of %q for %v", id, h.Absence.Of, h.For)
	}
	if e.TakenOver != nil {
		add("taken over: %s", r.names[e.TakenOver])
	}
	for _, a := range e.Announce {
		ended := ""
		if strings.Contains(a.Data, `"ended":true`) {
			ended = " ended"
		}
		add("%s %s%s", map[bool]string{true: "announce", false: "withdraw"}[a.Joined], a.ID, ended)
	}
	return strings.Join(all, ", ")
}

// TestMembers_Effects has an event in each line, and behind "=>" what follows from it.
func TestMembers_Effects(t *testing.T) {
	for name, steps := range map[string]string{
		"a connection joins and leaves": `
			join 1 ann => +ann, announce ann
			join 1 ann =>
			leave 1 => -ann, withdraw ann
			leave 1 =>`,
		"a member that may come back leaves for good": `
			join 1 ann 10s => +ann, announce ann 10000
			leave 1 => -ann, announce ann 10000 ended, withdraw ann 10000`,
		"info": `
			join 1 ann 0s a => +ann:a, announce ann
			join 1 ann 0s b =>
			rejoin 1 ann 0s b => -ann:a, +ann:b, announce ann
			rejoin 1 ann =>
			rejoin 2 ann 0s c =>`,
		"stays longer, not shorter": `
			join 1 ann 10s => +ann, announce ann 10000
			rejoin 1 ann 20s => announce ann 20000, withdraw ann 10000
			rejoin 1 ann 10s =>`,
		"two connections": `
			join 1 ann => +ann, announce ann
			join 2 ann =>
			leave 1 =>
			leave 2 => -ann, withdraw ann`,
		"another identity": `
			join 1 ann => +ann, announce ann
			rejoin 1 bob => +bob, -ann, announce bob, withdraw ann`,
		"another identity that is known": `
			join 1 ann => +ann, announce ann
			join 2 bob => +bob, announce bob
			rejoin 1 bob => -ann, withdraw ann
			leave 2 =>
			leave 1 => -bob, withdraw bob`,
		"moves to another node that has not announced it": `
			join 1 ann => +ann, announce ann
			move 1 => hold ann of "" for 6s, withdraw ann
			announced b ann => is back b, release ann
			time ann =>
			withdrawn b ann => -ann`,
		"does not arrive at another node": `
			join 1 ann => +ann, announce ann
			move 1 => hold ann of "" for 6s, withdraw ann
			time ann => -ann, release ann
			time ann =>`,
		"closed connection, client does not return": `
			join 1 ann 10s => +ann, announce ann 10000
			close 1 =>
			leave 1 => -ann, announce ann 10000 ended, withdraw ann 10000`,
		"closed connection, client returns": `
			join 1 ann 10s => +ann, announce ann 10000
			close 1 =>
			join 2 ann 10s => taken over: connection 1
			leave 1 =>
			leave 2 => -ann, announce ann 10000 ended, withdraw ann 10000`,
		"closed connection, client returns to another node": `
			join 1 ann 10s => +ann, announce ann 10000
			close 1 =>
			announced b ann 10000 => is back b, taken over: connection 1, withdraw ann 10000
			withdrawn b ann 10000 ended => -ann`,
		"one closed connection is enough": `
			join 1 ann 10s => +ann, announce ann 10000
			join 2 ann 10s =>
			close 1 =>
			close 2 => taken over: connection 1
			leave 2 => -ann, announce ann 10000 ended, withdraw ann 10000`,
		"closed connection whose session goes on": `
			join 1 ann 10s => +ann, announce ann 10000
			announced b ann 10000 => is back b
			close-moved 1 =>
			move 1 => withdraw ann 10000
			withdrawn b ann 10000 => hold ann of "b" for 6s`,
		"a node ends": `
			announced b ann 2000 => +ann, is back b
			withdrawn b ann 2000 => hold ann of "b" for 2s
			time ann => -ann, release ann`,
		"a member moves between nodes": `
			announced b ann 20000 => +ann, is back b
			withdrawn b ann 20000 => hold ann of "b" for 6s
			announced c ann 20000 => is back c, release ann
			time ann =>`,
		"nodes repeat themselves": `
			announced b ann => +ann, is back b
			announced b ann =>
			withdrawn b ann => -ann
			withdrawn b ann =>`,
		"ended before it is known": `
			announced b ann 10000 ended => is back b
			withdrawn b ann 10000 ended =>`,
		"ended by another node": `
			announced b ann 10000 => +ann, is back b
			withdrawn b ann 10000 => hold ann of "b" for 6s
			announced c ann 20000 ended => is back c, release ann
			withdrawn c ann 20000 ended => -ann`,
		"malformed": `
			malformed b ann { =>
			malformed b ann_-1 {} =>
			malformed b ann_x {} =>`,
		"untracked": `
			announced b bob 10000 => +bob, is back b
			announced b cat 10000 => +cat, is back b
			withdrawn b cat 10000 => hold cat of "b" for 6s
			join 1 ann => +ann, announce ann
			untrack => -bob, -cat, release cat
			announced b bob 10000 =>
			leave 1 => -ann, withdraw ann
			untrack =>`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom()
			for step := range strings.Lines(strings.TrimSpace(steps)) {
				event, want, _ := strings.Cut(strings.TrimSpace(step), "=>")
				assert.Equal(t, strings.TrimSpace(want), r.render(r.do(t, event)), event)
			}
		})
	}
}
