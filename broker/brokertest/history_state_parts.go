package brokertest

import (
	"fmt"
	"strings"

	"github.com/penstock-go/penstock/broker"
)

const (
	partBytes   = 2000 // of StateQuery.MaxBytes
	packetBytes = 100
	maxOverrun  = 30 // publications that a store may keep together
)

// A stateWriter sets keys and knows what it has stored.
type stateWriter struct {
	node   *historyNode
	topic  string
	stored []broker.Append // by offset - 1
}

func (w *stateWriter) set(key string, removed bool) error {
	a := broker.Append{Topic: w.topic, StateKey: key, Removed: removed, Packet: fmt.Appendf(nil, "%*d", packetBytes, len(w.stored))}
	w.stored = append(w.stored, a)
	_, err := w.node.store(a)
	return err
}

func (w *stateWriter) setAll(prefix string, from, to int, removed bool) error {
	for i := from; i < to; i++ {
		if err := w.set(fmt.Sprint(prefix, i), removed); err != nil {
			return err
		}
	}
	return nil
}

// latest returns the offsets of the state at an offset, by key.
func (w *stateWriter) latest(at uint64) map[string]uint64 {
	latest := map[string]uint64{}
	for i, a := range w.stored[:at] {
		if latest[a.StateKey] = uint64(i + 1); a.Removed {
			delete(latest, a.StateKey)
		}
	}
	return latest
}

// check returns how a part breaks the rules.
func (w *stateWriter) check(part broker.StatePart) error {
	if at := part.Position.Offset; at != uint64(len(w.stored)) {
		return fmt.Errorf("a part has the offset %d, want %d", at, len(w.stored))
	}
	latest := w.latest(part.Position.Offset)
	for _, p := range part.Publications {
		if latest[p.StateKey] != p.Position.Offset {
			return fmt.Errorf("at offset %d, a part contains %q of offset %d, want %d", part.Position.Offset, p.StateKey, p.Position.Offset, latest[p.StateKey])
		}
		if want := w.stored[p.Position.Offset-1].Packet; string(p.Packet) != string(want) {
			return fmt.Errorf("a part contains %.40q at offset %d, want %.40q", p.Packet, p.Position.Offset, want)
		}
	}
	if n := len(part.Publications); n > partBytes/packetBytes+maxOverrun {
		return fmt.Errorf("a part contains %d publications of %d bytes though MaxBytes is %d", n, packetBytes, partBytes)
	}
	return nil
}

// read calls each for every part, which nodes read in turn.
func (w *stateWriter) read(nodes []*historyNode, each func(number int, part broker.StatePart) error) error {
	q := broker.StateQuery{Topic: w.topic, Retention: keepAll(), MaxBytes: partBytes}
	limit := len(w.stored) + 100 // that many parts would contain one key each
	for number := range limit {
		part, err := nodes[number%len(nodes)].readStatePart(q)
		if err != nil {
			return err
		}
		if err := w.check(part); err != nil {
			return err
		}
		if err := each(number, part); err != nil || part.Next == "" {
			return err
		}
		q.Cursor = part.Next
	}
	return fmt.Errorf("the state does not end after %d parts", limit)
}

// statePartsAreComplete reads a state in parts, between which other keys change: few of them, and so
// many that a hash table grows or shrinks.
func statePartsAreComplete(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	const stable = 150
	for name, change := range map[string]func(w *stateWriter, number int) error{
		"nothing": func(*stateWriter, int) error { return nil },
		"some keys": func(w *stateWriter, number int) error {
			return w.setAll("other ", number, number+5, number%2 == 1)
		},
		"many new keys": func(w *stateWriter, number int) error {
			return w.setAll("new ", 60*number, 60*number+60, false)
		},
		"many removals": func(w *stateWriter, number int) error {
			return w.setAll("other ", 100*number, min(100*number+100, 10*stable), true)
		},
	} {
		if err := readWhile(c.topic(), nodes, stable, change); err != nil {
			return fmt.Errorf("while %s change: %w", name, err)
		}
	}
	return nil
}

func readWhile(topic string, nodes []*historyNode, stable int, change func(*stateWriter, int) error) error {
	w := &stateWriter{node: nodes[0], topic: topic}
	if err := w.setAll("other ", 0, stable, false); err != nil {
		return err
	}
	if err := w.setAll("stable ", 0, stable, false); err != nil {
		return err
	}
	got := map[string]bool{}
	err := w.read(nodes, func(number int, part broker.StatePart) error {
		for _, p := range part.Publications {
			got[p.StateKey] = true
		}
		if number >= 20 {
			return nil // the changes end
		}
		return change(w, number)
	})
	if err != nil {
		return err
	}
	for i := range stable {
		if key := fmt.Sprint("stable ", i); !got[key] {
			return fmt.Errorf("no part contains the key %q, which has not changed", key)
		}
	}
	return nil
}

// statePartsEnd sets every key again that a part contains, as long as there are parts.
func statePartsEnd(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(1)
	defer closeAll()
	w := &stateWriter{node: nodes[0], topic: c.topic()}
	if err := w.setAll("key ", 0, 100, false); err != nil {
		return err
	}
	return w.read(nodes, func(_ int, part broker.StatePart) error {
		for _, p := range part.Publications {
			if err := w.set(strings.Clone(p.StateKey), false); err != nil {
				return err
			}
		}
		return nil
	})
}
