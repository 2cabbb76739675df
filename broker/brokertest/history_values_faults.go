package brokertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// valueOutcomeIsTrue disturbs one node after the other while both replace values.
func valueOutcomeIsTrue(c HistoryCluster) error {
	return disturbEach(c.Faults, c.disturbValues)
}

func (c HistoryCluster) disturbValues(fault Fault, at int) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	writers := make([]*valueWriter, len(nodes))
	for i, n := range nodes {
		writers[i] = &valueWriter{node: n, key: c.topic(), unknown: map[string]bool{}}
	}
	if err := writeAll(writers, 10, 0); err != nil {
		return err
	}
	end := fault.Begin(nodes[at].HistoryNode)
	err := writeAll(writers, packetsInFault, fault.Duration)
	end()
	if err != nil {
		return err
	}
	for i, w := range writers {
		if err := errors.Join(w.finish(), w.isSeenBy(nodes[1-i])); err != nil {
			return err
		}
	}
	return nil
}

// writeAll has each writer replace its value a number of times. If that takes longer than d and d is
// not 0, it replaces it fewer times.
func writeAll(writers []*valueWriter, number int, d time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, len(writers))
	for i, w := range writers {
		wg.Go(func() {
			begun := time.Now()
			for range number {
				if d > 0 && time.Since(begun) >= d || errs[i] != nil {
					return
				}
				errs[i] = w.write()
				time.Sleep(d / time.Duration(number))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A valueWriter is the only one that replaces the value of its key, with one call after the other.
type valueWriter struct {
	node  *historyNode
	key   string
	calls int

	version uint64          // the last one that is known
	data    string          // of that version
	unknown map[string]bool // data of the calls with that version whose outcome is unknown
}

// write replaces the value, and checks that the result is possible.
func (w *valueWriter) write() error {
	if len(w.unknown) > 0 {
		if err := w.check(); err != nil {
			return err
		}
	}
	w.calls++
	data := fmt.Sprint("call ", w.calls)
	version, err := w.node.replace(w.key, data, w.version, time.Hour)
	switch errors.CodeOf(err) {
	case "":
		w.set(version, data)
	case errors.OutcomeUnknown:
		w.unknown[data] = true
	case errors.Aborted:
		if len(w.unknown) == 0 {
			return fmt.Errorf("version %d is current, but StoreValue returned %w", w.version, err)
		}
	}
	return nil
}

// set sets the current value. A call with an earlier version will not replace it.
func (w *valueWriter) set(version uint64, data string) {
	w.version, w.data = version, data
	clear(w.unknown)
}

// check loads the value, if that is possible, and checks that it was stored.
func (w *valueWriter) check() error {
	value, err := w.node.load(w.key)
	if err != nil {
		return nil //nolint:nilerr // only true results are required during a fault
	}
	data := string(value.Data)
	switch {
	case value.Version == w.version && data == w.data:
		return nil
	case value.Version != w.version && w.unknown[data]:
		w.set(value.Version, data)
		return nil
	}
	return fmt.Errorf("the value is %q with version %d; the last one that was stored is %q with version %d", data, value.Version, w.data, w.version)
}

// finish checks the value, and replaces it after the fault.
func (w *valueWriter) finish() error {
	for deadline := time.Now().Add(w.node.cluster.Timeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err := w.check(); err != nil {
			return err
		}
		if err := w.write(); err != nil {
			return err
		}
		if w.data == fmt.Sprint("call ", w.calls) {
			return nil
		}
	}
	return fmt.Errorf("the value of %.40q was not stored within %v after the fault", w.key, w.node.cluster.Timeout)
}

// isSeenBy checks that another node loads the value. Its first calls after a fault may fail.
func (w *valueWriter) isSeenBy(n *historyNode) error {
	for deadline := time.Now().Add(n.cluster.Timeout); ; time.Sleep(time.Millisecond) {
		value, err := n.load(w.key)
		if err == nil {
			return compareValue(w.key, value, w.data, w.version)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after the fault: %w", err)
		}
	}
}
