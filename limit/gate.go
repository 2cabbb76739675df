package limit

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
)

// Joint calls that no store decides in one step take from one limiter after the other. What they have
// taken from the first ones is missing for others until the last one has decided. These bounds keep a
// flood of calls that the last one denies from emptying the first ones meanwhile.
const (
	maxJointCalls = 16 // of the same limiters and keys, so that others need not wait for all of them
	maxOnTheWay   = 64 // joint calls of a limiter and key, and half of what its bucket can hold
)

// gates are those of this process. They know limiters and keys by a hash; two with the same one share a gate.
//
//nolint:gochecknoglobals // requests to the same limiters have no other place in common
var gates = struct {
	seed maphash.Seed
	mu   sync.Mutex
	open map[uint64]*gate
}{seed: maphash.MakeSeed(), open: map[uint64]*gate{}}

// A gate bounds how many calls are between it and its end. It exists while it has some.
type gate struct {
	places chan struct{}
	calls  int // that hold a place or wait for one
}

// A gateKey names a gate, which has a number of places when it is created.
type gateKey struct {
	hash   uint64
	places int
}

// gatesOf returns the gates of joint requests, in the order in which all calls enter them. The first one
// is that of calls for the same requests. The last request has no other one: it is not undone.
func gatesOf(requests []Request) []gateKey {
	keys := make([]gateKey, 0, len(requests))
	all := gateKey{places: maxJointCalls}
	for i, r := range requests {
		own := gateKey{maphash.Comparable(gates.seed, r.Limiter) ^ r.Key.Hash(gates.seed), maxOnTheWay}
		all.hash = all.hash*31 + own.hash
		if describer, ok := r.Limiter.(describer); ok && r.Cost > 0 {
			for _, d := range describer.Describe() {
				own.places = max(min(own.places, int(min(d.Limit/(2*r.Cost), maxOnTheWay))), 1)
			}
		}
		if i < len(requests)-1 && r.Cost > 0 {
			keys = append(keys, own)
		}
	}
	slices.SortFunc(keys, func(a, b gateKey) int { return cmp.Compare(a.hash, b.hash) })
	keys = slices.CompactFunc(keys, func(a, b gateKey) bool { return a.hash == b.hash })
	return slices.Insert(keys, 0, all)
}

// enterGates waits for a place in each gate. It returns how to leave them, and whether it had to wait.
func enterGates(ctx context.Context, keys []gateKey) (leave func(), waited bool, err error) {
	entered := 0
	leave = func() {
		for _, k := range keys[:entered] {
			k.leave(true)
		}
	}
	for _, k := range keys {
		hadToWait, err := k.enter(ctx)
		if err != nil {
			leave()
			return nil, true, err
		}
		entered++
		waited = waited || hadToWait
	}
	return leave, waited, nil
}

func (k gateKey) enter(ctx context.Context) (waited bool, err error) {
	gates.mu.Lock()
	g := gates.open[k.hash]
	if g == nil {
		g = &gate{places: make(chan struct{}, k.places)}
		gates.open[k.hash] = g
	}
	g.calls++
	gates.mu.Unlock()
	select {
	case g.places <- struct{}{}:
		return false, nil
	default:
	}
	select {
	case g.places <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		k.leave(false)
		return true, ctx.Err()
	}
}

func (k gateKey) leave(hasPlace bool) {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	g := gates.open[k.hash]
	if hasPlace {
		<-g.places // its own
	}
	if g.calls--; g.calls == 0 {
		delete(gates.open, k.hash)
	}
}
