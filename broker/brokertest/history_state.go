package brokertest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

func stateIsLatest(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 1, Age: time.Hour}
	latest := map[string]broker.Publication{}
	for i, step := range strings.Fields("a=1 b=1 c=1 a=2 -b -unknown d=1 -d d=2 none c=2 -e e=1 -e") {
		key, _, _ := strings.Cut(strings.TrimPrefix(step, "-"), "=")
		a := broker.Append{Topic: topic, Retention: r, Packet: []byte(step), StateKey: key, Removed: step[0] == '-'}
		if key == "none" {
			a.StateKey = ""
		}
		if _, err := nodes[i%2].store(a); err != nil {
			return err
		}
		page, err := nodes[0].read(broker.Query{Topic: topic, After: uint64(i), Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Publications) != 1 || string(page.Publications[0].Packet) != step {
			return fmt.Errorf("%q is not the publication with offset %d", step, i+1)
		}
		if latest[a.StateKey] = page.Publications[0]; a.Removed || a.StateKey == "" {
			delete(latest, a.StateKey)
		}
		state, err := nodes[1].readState(topic, r)
		if err != nil {
			return err
		}
		var want []broker.Publication
		for _, p := range latest {
			want = append(want, p)
		}
		if err := compareState(state, page.Position, want...); err != nil {
			return fmt.Errorf("after %s: %w", step, err)
		}
	}
	return nil
}

func compareState(state broker.StatePart, position broker.Position, want ...broker.Publication) error {
	byOffset := func(a, b broker.Publication) int { return cmp.Compare(a.Position.Offset, b.Position.Offset) }
	slices.SortFunc(state.Publications, byOffset)
	want = slices.SortedFunc(slices.Values(want), byOffset)
	if state.Position != position {
		return fmt.Errorf("the state's position is %+v, want %+v", state.Position, position)
	}
	return comparePublications("in the state", state.Publications, want)
}

func stateExpires(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 1, Age: c.Age}
	for _, key := range []string{"a", "b"} {
		if _, err := nodes[0].store(broker.Append{Topic: topic, Retention: r, StateKey: key}); err != nil {
			return err
		}
	}
	time.Sleep(2 * c.Age)
	position, err := nodes[0].position(topic)
	if err != nil {
		return err
	}
	state, err := nodes[1].readState(topic, r)
	if err != nil {
		return err
	}
	if position.Offset != 2 {
		return fmt.Errorf("the position is %+v, want offset 2", position)
	}
	return compareState(state, position)
}

func stateIsOfOneMoment(c HistoryCluster) error {
	const keys, total = 3, 150
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	var states []broker.StatePart
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range total {
			a := broker.Append{Topic: topic, StateKey: strconv.Itoa(i % keys), Removed: i%7 == 0}
			_, err := nodes[0].store(a)
			errs[0] = errors.Join(errs[0], err)
		}
	})
	wg.Go(func() {
		for errs[1] == nil && (len(states) == 0 || states[len(states)-1].Position.Offset < total) && len(states) < 100*total {
			state, err := nodes[1].readState(topic, keepAll())
			states, errs[1] = append(states, state), err
		}
	})
	wg.Wait()
	page, err := nodes[0].history(topic)
	if err = errors.Join(errs[0], errs[1], err); err != nil {
		return err
	}
	if len(page.Publications) != total {
		return fmt.Errorf("%d publications are stored, want %d", len(page.Publications), total)
	}
	for _, state := range states {
		latest := map[string]broker.Publication{}
		for _, p := range page.Publications[:min(state.Position.Offset, total)] {
			latest[p.StateKey] = p
		}
		var want []broker.Publication
		for _, p := range latest {
			if !p.Removed {
				want = append(want, p)
			}
		}
		if err := compareState(state, state.Position, want...); err != nil {
			return fmt.Errorf("at offset %d: %w", state.Position.Offset, err)
		}
	}
	return nil
}
