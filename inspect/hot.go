package inspect

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/host"
)

// This file finds the topics with the most publications. Publications are counted only while an operator asks.

const (
	hotIdle   = 30 * time.Second // after which nothing is counted until an operator asks again
	hotWindow = 2 * time.Second  // at least, of what an answer counts
	maxHot    = 4096             // topics of one window that are counted on their own
	hotRows   = 20
)

// hotTopics count the publications on this node.
type hotTopics struct {
	timer *time.Timer // ends the counting

	mu              sync.Mutex
	began           time.Time // when current was empty
	current, latest map[string]hotCount
	took            time.Duration // what latest counts; 0 before the first
}

type hotCount struct{ publications, deliveries int64 }

func (h *hotTopics) count(d *host.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.current[d.Topic]
	if !ok && len(h.current) >= maxHot {
		return
	}
	h.current[d.Topic] = hotCount{c.publications + 1, c.deliveries + int64(d.Receivers)}
}

// read returns what the latest complete window has counted.
func (h *hotTopics) read(now time.Time) (counts map[string]hotCount, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := now.Sub(h.began); d >= hotWindow {
		h.latest, h.took = h.current, d
		h.current, h.began = map[string]hotCount{}, now
	}
	return h.latest, h.took // latest never changes
}

// A hotRow is a topic with the rates of a few seconds.
type hotRow struct {
	Name         string  `json:"name"`
	Subscribers  int     `json:"subscribers"`
	Publications float64 `json:"publicationsPerSecond"`
	Deliveries   float64 `json:"deliveriesPerSecond"` // to connections
}

type hotAnswer struct {
	Rows    []hotRow `json:"rows"`
	Counted bool     `json:"counted"` // false if the node has just begun to count
}

// localHot returns the topics of this node with the most deliveries.
func (i *Inspector) localHot(context.Context, struct{}) (a hotAnswer, err error) {
	counts, took := i.countHot().read(time.Now())
	a.Counted = took > 0
	for name, c := range counts {
		a.Rows = append(a.Rows, hotRow{Name: name, Publications: float64(c.publications) / took.Seconds(), Deliveries: float64(c.deliveries) / took.Seconds()})
	}
	slices.SortFunc(a.Rows, hotRow.compare)
	a.Rows = a.Rows[:min(len(a.Rows), hotRows)]
	for n := range a.Rows {
		if found, _ := i.access.Topics(a.Rows[n].Name, "", 1); len(found) > 0 && found[0].Name == a.Rows[n].Name {
			a.Rows[n].Subscribers = found[0].Subscribers
		}
	}
	return a, nil
}

func (r hotRow) compare(other hotRow) int {
	return cmp.Or(cmp.Compare(other.Deliveries, r.Deliveries), cmp.Compare(other.Publications, r.Publications), cmp.Compare(r.Name, other.Name))
}

// countHot begins to count, or continues.
func (i *Inspector) countHot() (h *hotTopics) {
	_ = i.changeRecorders(func(r recorders) (recorders, error) { // never fails
		if h = r.hot; h == nil {
			h = &hotTopics{began: time.Now(), current: map[string]hotCount{}}
			h.timer = time.AfterFunc(hotIdle, func() { i.endHot(h) })
			r.hot = h
		}
		h.timer.Reset(hotIdle)
		return r, nil
	})
	return h
}

func (i *Inspector) endHot(h *hotTopics) {
	_ = i.changeRecorders(func(r recorders) (recorders, error) { // never fails
		if r.hot == h {
			r.hot = nil
		}
		return r, nil
	})
}

// listHot returns the topics with the most deliveries on all nodes. Each node with subscribers has the same
// publications of a topic.
func (i *Inspector) listHot(ctx context.Context) (any, error) {
	answers, states, err := gather[hotAnswer](ctx, i, askHot, struct{}{})
	if err != nil {
		return nil, err
	}
	byName, counted := map[string]hotRow{}, false
	for _, a := range answers {
		counted = counted || a.Result.Counted
		for _, t := range a.Result.Rows {
			sum := byName[t.Name]
			byName[t.Name] = hotRow{t.Name, t.Subscribers + sum.Subscribers, max(t.Publications, sum.Publications), t.Deliveries + sum.Deliveries}
		}
	}
	rows := []hotRow{}
	for _, t := range byName {
		rows = append(rows, t)
	}
	slices.SortFunc(rows, hotRow.compare)
	return struct {
		Nodes   nodeStates `json:"nodes"`
		Rows    []hotRow   `json:"rows"`
		Counted bool       `json:"counted"` // false if the nodes have just begun to count
	}{states, rows[:min(len(rows), hotRows)], counted}, nil
}
