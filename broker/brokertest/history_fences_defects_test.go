package brokertest_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

func brokenFences() map[string]brokenHistory {
	return map[string]brokenHistory{
		"ignores fences": {changeAppend(func(a *broker.Append) { a.Fence = 0 }), "lower fence"},
		"rounds fences": {changeAppend(func(a *broker.Append) {
			a.Fence = uint64(min(float64(a.Fence), 1<<62))
		}), "lower fence"},
		"compares fences as text": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if strings.Compare(strconv.FormatUint(a.Fence, 10), strconv.FormatUint(f.fences[a.Topic], 10)) < 0 {
				return broker.Appended{}, errLowerFence
			}
			return f.append(a)
		}), "higher fence"},
		"compares fences with a sign": {changeAppend(func(a *broker.Append) { a.Fence ^= 1 << 63 }), "higher fence"},
		"ignores the required epoch":  {changeAppend(func(a *broker.Append) { a.Epoch = "" }), "required epoch"},
		"refuses any required epoch": {changeAppend(func(a *broker.Append) {
			if a.Epoch != "" {
				a.Epoch = "other"
			}
		}), "required epoch"},
		"refuses equal fences": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if a.Fence > 0 && a.Fence <= f.fences[a.Topic] {
				return broker.Appended{}, errLowerFence
			}
			return f.append(a)
		}), "higher fence"},
		"stores what it refuses": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			result, err := f.append(a)
			if errors.CodeOf(err) == errors.Aborted {
				a.Fence = math.MaxUint64
				_, _ = f.append(a)
			}
			return result, err
		}), "lower fence"},
		"remembers the keys of refused publications": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if f.refused[a.Topic+a.IdempotencyKey] {
				return broker.Appended{Duplicate: true}, nil
			}
			result, err := f.append(a)
			f.refused[a.Topic+a.IdempotencyKey] = err != nil
			return result, err
		}), "lower fence"},
		"checks the fence before the key": {fenceDefect(refuseLower), "duplicate with a fence"},
		"closes with a duplicate": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			result, err := f.append(a)
			if result.Duplicate && a.Last {
				a.IdempotencyKey, a.Fence = "", math.MaxUint64
				_, _ = f.append(a)
			}
			return result, err
		}), "duplicate with a fence"},
		"checks the fence before it stores": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if a.Fence < f.fences[a.Topic] {
				return broker.Appended{}, errLowerFence
			}
			f.mu.Unlock()
			time.Sleep(time.Duration(3-a.Fence) * time.Millisecond) // between the check and the Append
			f.mu.Lock()
			f.fences[a.Topic] = max(f.fences[a.Topic], a.Fence)
			a.Fence = 0
			return f.append(a)
		}), "concurrent fences"},
		"never closes": {changeAppend(func(a *broker.Append) { a.Last = false }), "closed topic"},
		"refuses with the code of fences": {changeOutcome(func(_ broker.Append, _ *broker.Appended, err error) error {
			if errors.CodeOf(err) == errors.FailedPrecondition {
				return errLowerFence
			}
			return err
		}), "closed topic"},
		"checks the fence before it checks whether the topic is closed": {fenceDefect(refuseLower), "closed topic"},
		"closes with a refused publication": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if f.refused[a.Topic] {
				return broker.Appended{}, errors.Errorf(errors.FailedPrecondition, "closed")
			}
			result, err := f.append(a)
			f.refused[a.Topic] = err != nil && a.Last
			return result, err
		}), "closed topic"},
		"checks whether a topic is closed before it stores": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if f.refused[a.Topic] {
				return broker.Appended{}, errors.Errorf(errors.FailedPrecondition, "closed")
			}
			f.mu.Unlock()
			time.Sleep(time.Millisecond) // between the check and the Append
			f.mu.Lock()
			f.refused[a.Topic] = f.refused[a.Topic] || a.Last
			a.Last = false
			return f.append(a)
		}), "concurrent closes"},
		"does not read whether a topic is closed":      {pageDefect(func(_ broker.Query, p *broker.Page) { p.Closed = false }), "closed is read"},
		"closes topics before their first publication": {pageDefect(func(_ broker.Query, p *broker.Page) { p.Closed = true }), "closed is read"},
		"does not read in batches whether one is closed": {batchDefect(func(_ broker.Batch, pages []broker.BatchPage) []broker.BatchPage {
			for i := range pages {
				pages[i].Closed = false
			}
			return pages
		}), "closed is read"},
		"opens a topic without publications": {historyDefect{node: func(o *override) {
			changePage(o, func(q broker.Query, p *broker.Page) { p.Closed = p.Closed && len(o.history(q.Topic)) > 0 })
		}}, "fence outlives publications"},
		"drops the fence with the publications": {fenceDefect(func(f fencedCall, a broker.Append) (broker.Appended, error) {
			if last, ok := f.last[a.Topic]; ok && time.Since(last) > a.Retention.Age {
				a.Fence = math.MaxUint64
			}
			return f.append(a)
		}), "fence outlives publications"},
		"keeps the fence of a forgotten topic":        {fenceDefect(refuseLower), "forgotten fence"},
		"repeats fenced publications without the key": {changeAppend(func(a *broker.Append) { a.IdempotencyKey = "" }), "fenced outcome is true"},
		"ignores Last": {changeAppend(func(a *broker.Append) { a.Last = false }), "fenced outcome is true"},
	}
}

var errLowerFence = errors.Errorf(errors.Aborted, "the topic has a higher fence")

// knownFences are what a defect knows of the publications of all nodes.
type knownFences struct {
	mu      sync.Mutex
	fences  map[string]uint64    // by topic
	last    map[string]time.Time // when a publication was stored, by topic
	refused map[string]bool      // by topic and idempotency key
}

// A fencedCall is a call of Append.
type fencedCall struct {
	*knownFences

	inner func(broker.Append) (broker.Appended, error) // of the correct broker
}

// append passes a publication on.
func (f fencedCall) append(a broker.Append) (broker.Appended, error) {
	result, err := f.inner(a)
	if err == nil && !result.Duplicate {
		f.fences[a.Topic], f.last[a.Topic] = max(f.fences[a.Topic], a.Fence), time.Now()
	}
	return result, err
}

// refuseLower checks the fence before anything else, and never forgets it.
func refuseLower(f fencedCall, a broker.Append) (broker.Appended, error) {
	if a.Fence < f.fences[a.Topic] {
		return broker.Appended{}, errLowerFence
	}
	return f.append(a)
}

// fenceDefect replaces Append on all nodes. broken runs with the lock of f held.
func fenceDefect(broken func(f fencedCall, a broker.Append) (broker.Appended, error)) historyDefect {
	f := &knownFences{fences: map[string]uint64{}, last: map[string]time.Time{}, refused: map[string]bool{}}
	return historyDefect{node: func(o *override) {
		o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return broken(fencedCall{f, func(a broker.Append) (broker.Appended, error) { return o.HistoryNode.Append(ctx, a) }}, a)
		}
	}}
}
