//go:build unix

package faults_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A record contains everything that the nodes of a run have printed. It is safe for concurrent
// use. Times are in nanoseconds since 1970, by the clock that all processes share.
type record struct {
	mu         sync.Mutex
	closed     bool                 // ignores further lines
	published  map[stream][]message // with the time after Publish returned nil
	rejected   map[string]int       // by node: Publish returned an error
	delivered  map[path][]message   // in the order of arrival
	reports    map[place][]int64    // times
	views      []view               // in the order of arrival
	grants     []grant
	limitFails []int64 // times of decisions that failed
	shutdowns  map[string]string
	invalid    []string // lines that are in no known format
}

// A stream is what one node publishes in a room, or sends to the user.
type stream struct {
	from string
	room int // or toUser
}

// A path is a stream as one node receives it.
type path struct {
	to string
	stream
}

// A place is a room on a node.
type place struct {
	node string
	room int
}

type message struct {
	num int
	at  int64
}

// A view is what a node knows of presence.
type view struct {
	node    string
	at      int64
	own     string // members of the lobby on the node
	members string // of the lobby and of the rooms
}

// A grant is a token. The server granted it at some time from sent to received.
type grant struct{ tokens, sent, received int64 }

func newRecord() *record {
	return &record{
		published: map[stream][]message{}, rejected: map[string]int{}, delivered: map[path][]message{},
		reports: map[place][]int64{}, shutdowns: map[string]string{},
	}
}

// add parses a line: its kind, the time, and the values that node.print got.
func (r *record) add(node, line string) {
	kind, rest, _ := strings.Cut(line, " ")
	if len(kind) != 1 || !strings.Contains("PEDRVGXQ", kind) {
		return // a line of package testing
	}
	fields := strings.Split(rest, " ")
	at, err := strconv.ParseInt(fields[0], 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if err == nil {
		err = r.addEvent(node, kind, at, fields[1:])
	}
	if err != nil {
		r.invalid = append(r.invalid, fmt.Sprintf("%s: %s: %v", node, line, err))
	}
}

// close ends the record, before the nodes end and notice that of each other.
func (r *record) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func (r *record) addEvent(node, kind string, at int64, values []string) error {
	switch kind {
	case "V":
		r.views = append(r.views, view{node, at, values[0], strings.Join(values[1:], " ")})
		return nil
	case "Q":
		r.shutdowns[node] = strings.Join(values, " ")
		return nil
	case "R":
		return r.addReport(node, at, values[0])
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return err
	}
	switch kind {
	case "G":
		r.grants = append(r.grants, grant{1, n, at})
		return nil
	case "X":
		r.limitFails = append(r.limitFails, at)
		return nil
	}
	num, err := strconv.Atoi(values[len(values)-1])
	if err != nil {
		return err
	}
	switch s := (stream{node, int(n)}); kind {
	case "P":
		r.published[s] = append(r.published[s], message{num, at})
	case "E":
		r.rejected[node]++
	case "D":
		s.from = values[1]
		p := path{node, s}
		r.delivered[p] = append(r.delivered[p], message{num, at})
	}
	return nil
}

// addReport adds a report about a room, or about messages to users if topic is "". Nothing is
// published in the lobby.
func (r *record) addReport(node string, at int64, topic string) error {
	p := place{node, toUser}
	switch topic {
	case lobby:
		return nil
	case "":
	default:
		var err error
		if p.room, err = strconv.Atoi(topic); err != nil {
			return err
		}
	}
	r.reports[p] = append(r.reports[p], at)
	return nil
}

// deliveredTo returns how many messages node to received from another node, or from any other
// node if from is "", of those that were received between two times.
func (r *record) deliveredTo(to, from string, after, before int64) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, messages := range r.delivered {
		if p.to != to || p.from == to || from != "" && p.from != from {
			continue
		}
		n += countBetween(messages, after, before)
	}
	return n
}

// publishedBy does the same with what a node published.
func (r *record) publishedBy(node string, after, before int64) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s, messages := range r.published {
		if s.from == node {
			n += countBetween(messages, after, before)
		}
	}
	return n
}

func countBetween(messages []message, after, before int64) (n int) {
	for _, m := range messages {
		if m.at >= after && m.at <= before {
			n++
		}
	}
	return n
}

// receivesAll reports whether every node has received a message of every other one, in every
// room, that was published after a time.
func (r *record) receivesAll(nodes []string, after int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, to := range nodes {
		for _, from := range nodes {
			for room := range streams {
				s := stream{from, room}
				first := slices.IndexFunc(r.published[s], func(m message) bool { return m.at >= after })
				got := r.delivered[path{to, s}]
				if first < 0 || len(got) == 0 || got[len(got)-1].num < r.published[s][first].num {
					return false
				}
			}
		}
	}
	return true
}

// latencies returns how long messages of other nodes took to a node, of those that were received
// after a time.
func (r *record) latencies(to string, after int64) (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, messages := range r.delivered {
		if p.to != to || p.from == to {
			continue
		}
		published := map[int]int64{}
		for _, m := range r.published[p.stream] {
			published[m.num] = m.at
		}
		for _, m := range messages {
			if at := published[m.num]; at != 0 && m.at >= after {
				all = append(all, time.Duration(m.at-at))
			}
		}
	}
	return all
}
