package present

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// This file has what the events of a Table have in common.

// handle changes an absence, or those of a key, because of an event, and then calls Act without the lock.
func (t *Table) handle(key any, eventLocked func(*Absence) Action) {
	t.mu.Lock()
	all := slices.Collect(maps.Keys(t.absences[key]))
	if a, ok := key.(*Absence); ok {
		all = []*Absence{a}
	}
	var actions []func()
	for _, a := range all {
		if do := eventLocked(a); do.Kind != Leave || do.Topics != nil {
			act := a.Act
			actions = append(actions, func() { act(a, do) })
		}
	}
	t.mu.Unlock()
	for _, act := range actions {
		act()
	}
}

// handleUser is handle for all absences of a user.
func (t *Table) handleUser(user User, eventLocked func(*Absence) Action) {
	t.handle(user, eventLocked)
	t.handle(uncounted, func(a *Absence) Action {
		if a.User != user {
			return Action{}
		}
		return eventLocked(a)
	})
}

// Place implements [timerqueue.Entry].
func (a *Absence) Place() *int32 { return &a.place }

// Fire implements [timerqueue.Entry].
func (a *Absence) Fire() { go a.table.handle(a, a.table.timeIsUpLocked) }

func (t *Table) timeIsUpLocked(a *Absence) Action {
	switch now := t.now(); a.state {
	case waiting, evicted:
		return Action{Kind: Expire}
	case recorded:
		t.moveLocked(a, out)
		return Action{}
	default:
		return t.leaveLocked(a, func(s stay) bool { return s.until <= now })
	}
}

func (a *Absence) waits() bool { return a.state == waiting || a.state == evicted }

func everywhere(stay) bool { return true }

// leaveLocked ends the presence in topics, and the absence with that in the last one, unless it is that of a session.
func (t *Table) leaveLocked(a *Absence, leaves func(stay) bool) Action {
	var left []string
	a.topics = slices.DeleteFunc(a.topics, func(s stay) bool {
		if !leaves(s) {
			return false
		}
		left = append(left, s.topic)
		return true
	})
	switch {
	case a.waits(), a.state == recorded:
	case len(a.topics) > 0:
		t.setFirstLocked(a)
	default:
		t.moveLocked(a, out)
	}
	return Action{Kind: Leave, Topics: left}
}

// enterLocked adds a client, and ends the absence of the oldest one of the same user or address if there are too many.
func (t *Table) enterLocked(a *Absence, s state) {
	t.moveLocked(a, s)
	t.boundLocked(t.absences[a.User], t.perUser, Action{Kind: Evict})
	t.boundLocked(t.absences[a.Client.Address], t.perAddress, Action{Kind: Evict, PerAddress: true})
}

func (t *Table) boundLocked(clients map[*Absence]struct{}, limit int, do Action) {
	if len(clients) <= limit {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(clients)), func(a, b *Absence) int { return cmp.Compare(a.number, b.number) })
	switch oldest.state {
	case waiting:
		t.moveLocked(oldest, evicted)
	case recorded:
		t.moveLocked(oldest, out)
	default:
		do = t.leaveLocked(oldest, everywhere)
	}
	go oldest.Act(oldest, do)
}

// now returns the time since the table was created.
func (t *Table) now() time.Duration { return time.Since(t.began) }

// setFirstLocked sets the clock for the first topic that is left.
func (t *Table) setFirstLocked(a *Absence) {
	first := slices.MinFunc(a.topics, func(a, b stay) int { return cmp.Compare(a.until, b.until) })
	t.clock.Set(a, first.until-t.now())
}

// uncounted is the key of those that do not count for their user and address.
const uncounted = evicted

// keys returns by what an absence is found.
func (a *Absence) keys() (keys []any) {
	switch a.state {
	case out:
		return nil
	case evicted, held:
		keys = append(keys, uncounted)
	default:
		if a.User.UserID != "" {
			keys = append(keys, a.User)
		}
		if a.Client.Address.IsValid() {
			keys = append(keys, a.Client.Address)
		}
	}
	if a.Of != "" {
		keys = append(keys, a.Of)
	}
	return keys
}

// moveLocked changes the state.
func (t *Table) moveLocked(a *Absence, next state) {
	if a.state == out {
		t.entered++
		a.table, a.number = t, t.entered
	}
	for _, key := range a.keys() {
		if delete(t.absences[key], a); len(t.absences[key]) == 0 {
			delete(t.absences, key)
		}
	}
	a.state = next
	for _, key := range a.keys() {
		if t.absences[key] == nil {
			t.absences[key] = map[*Absence]struct{}{}
		}
		t.absences[key][a] = struct{}{}
	}
	if next == out {
		t.clock.Stop(a)
	}
}
