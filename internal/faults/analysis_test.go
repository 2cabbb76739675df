//go:build unix

package faults_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// losses is what became of the messages of a run, counted once for each receiving node.
type losses struct {
	messages   int // delivered or lost
	lost       int
	reported   int // of the lost ones: a report came after their publication
	unsent     int // of a killed node, which no node received
	duplicated int // or delivered in another order
	reports    int
	perTopic   int // the largest number of reports of one room on one node
	unreported []string
}

// countLosses compares what nodes published with what the nodes in to received: every number once
// and in order, or a report after it was published. A path begins with the first message that was
// delivered. What a killed node published last and no node received had not been sent.
func (r *record) countLosses(to []string, killed string) (l losses) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s, published := range r.published {
		sent := 0
		for _, node := range to {
			for _, m := range r.delivered[path{node, s}] {
				sent = max(sent, m.num)
			}
		}
		for _, node := range to {
			r.countPath(&l, path{node, s}, published, func(m message) bool { return s.from == killed && m.num > sent })
		}
	}
	for p, times := range r.reports {
		if slices.Contains(to, p.node) {
			l.reports += len(times)
			l.perTopic = max(l.perTopic, len(times))
		}
	}
	return l
}

func (r *record) countPath(l *losses, p path, published []message, unsent func(message) bool) {
	delivered := r.delivered[p]
	if len(delivered) == 0 {
		return // recoveredAfter finds it
	}
	first, last := delivered[0].num, 0
	seen := map[int]bool{}
	for _, m := range delivered {
		if m.num <= last {
			l.duplicated++
		}
		last = max(last, m.num)
		seen[m.num] = true
	}
	for _, m := range published {
		switch {
		case m.num < first:
			continue
		case seen[m.num]:
		case unsent(m):
			l.unsent++
			continue
		default:
			l.lost++
			if p.to != p.from && r.reportedAfter(place{p.to, p.room}, m.at) {
				l.reported++
			} else {
				l.unreported = append(l.unreported, fmt.Sprintf("%v %d, published at %v", p, m.num, time.Unix(0, m.at)))
			}
		}
		l.messages++
	}
}

// reportedAfter reports whether a loss in a room was reported after a time.
func (r *record) reportedAfter(p place, at int64) bool {
	times := r.reports[p]
	return len(times) > 0 && times[len(times)-1] > at
}

// recoveredAfter returns the time from the end of a fault until every node has received a message
// of every other one, in every room, that was published after the last lost one and after the end.
// It returns an error if a node has not.
func (r *record) recoveredAfter(nodes []string, ended int64) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	recovered := ended
	for _, to := range nodes {
		for _, from := range nodes {
			for room := range streams {
				p := path{to, stream{from, room}}
				if to == from {
					continue
				}
				at, ok := r.recoveredPath(p, ended)
				if !ok {
					return 0, fmt.Errorf("%v has not recovered", p)
				}
				recovered = max(recovered, at)
			}
		}
	}
	return time.Duration(recovered - ended), nil
}

func (r *record) recoveredPath(p path, ended int64) (at int64, ok bool) {
	delivered := r.delivered[p]
	if len(delivered) == 0 {
		return 0, false
	}
	seen := map[int]bool{}
	for _, m := range delivered {
		seen[m.num] = true
	}
	last := 0 // published before the end, or lost
	for _, m := range r.published[p.stream] {
		if m.at < ended || m.num > delivered[0].num && !seen[m.num] {
			last = m.num
		}
	}
	for _, m := range delivered {
		if m.num > last {
			return m.at, true
		}
	}
	return 0, false
}

// convergedAfter returns the time from the end of a fault until the views of all nodes were equal
// and contained exactly the members that these nodes have, for the rest of the run.
func (r *record) convergedAfter(nodes []string, ended int64) (time.Duration, error) {
	r.mu.Lock()
	views := slices.Clone(r.views)
	r.mu.Unlock()
	slices.SortStableFunc(views, func(a, b view) int { return cmp.Compare(a.at, b.at) })
	current := map[string]view{}
	converged := int64(0)
	for _, v := range views {
		if !slices.Contains(nodes, v.node) {
			continue
		}
		current[v.node] = v
		switch equal := equalViews(nodes, current); {
		case !equal:
			converged = 0
		case converged == 0:
			converged = v.at
		}
	}
	if converged == 0 {
		return 0, fmt.Errorf("the nodes have different views of presence: %v", current)
	}
	return time.Duration(max(converged-ended, 0)), nil
}

// equalViews reports whether all nodes know the members of all nodes and no others.
func equalViews(nodes []string, current map[string]view) bool {
	var names, members []string
	for _, node := range nodes {
		names = append(names, node)
		members = append(members, strings.Split(current[node].own, ",")...)
	}
	slices.Sort(names)
	slices.Sort(members)
	want := strings.Join(members, ",") + strings.Repeat(";"+strings.Join(names, ","), rooms)
	for _, node := range nodes {
		if current[node].members != want {
			return false
		}
	}
	return true
}

// excess returns by how many tokens the grants exceed the policy's bound, in the interval in which
// they do so most: its capacity and its refill in that interval. It is not positive if the bound
// holds.
func excess(grants []grant, capacity, perSecond int64) float64 {
	byEnd := slices.Clone(grants)
	slices.SortFunc(byEnd, func(a, b grant) int { return cmp.Compare(a.received, b.received) })
	worst := -capacity * 1e9
	for _, first := range byEnd {
		sum := int64(0)
		for _, g := range byEnd {
			if g.sent >= first.sent {
				sum += g.tokens * 1e9
				worst = max(worst, sum-perSecond*(g.received-first.sent)-capacity*1e9)
			}
		}
	}
	return float64(worst) / 1e9
}

// limitExcess is the excess of all grants of a run.
func (r *record) limitExcess() (tokens float64, grants int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return excess(r.grants, policy.Capacity, policy.Refill), len(r.grants)
}
