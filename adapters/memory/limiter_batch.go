package memory

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// BatchesWith reports whether other is a Limiter of this package.
func (l *Limiter) BatchesWith(other limit.Limiter) bool {
	_, ok := other.(*Limiter)
	return ok
}

// A batchCall is one request of a batch.
type batchCall struct {
	limiter *Limiter
	shard   *shard
	hash    uint64
	request request
	bucket  int   // index of its heldBucket
	missing int64 // what the bucket was missing before, in units
}

// A heldBucket is a bucket about which a batch decides. Its value is held meanwhile, except
// that of an overflow bucket, which mu of the shard protects.
type heldBucket struct {
	shard *shard
	hash  uint64 // 0 for the overflow bucket
	old   int64  // value before the batch
	value int64  // value after the requests decided so far
}

// TakeBatch takes the cost of every request, or of none, in one atomic step: no other call
// sees a part of it.
func (l *Limiter) TakeBatch(_ context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	calls := make([]batchCall, len(requests))
	for i, r := range requests {
		one := take
		one.Cost = r.Cost
		if err := one.Validate(); err != nil {
			return nil, fmt.Errorf("memory: %w", err)
		}
		rl, ok := r.Limiter.(*Limiter)
		if !ok {
			return nil, fmt.Errorf("memory: a batch cannot hold a request to a %T", r.Limiter)
		}
		hash := r.Key.Hash(rl.seed)
		calls[i] = batchCall{rl, &rl.shards[hash>>rl.shift], hash, request{tokens: r.Cost, maxWait: take.MaxWait.Microseconds(), tracked: true}, 0, 0}
	}
	defer unlockAll(lockLeases(calls, take.Receipt))
	defer cleanLeases(calls, take.Receipt)
	defer unlockAll(lockShards(calls))
	buckets := holdBucketsLocked(calls)
	decisions, allowed := decideBatch(calls, buckets)
	if take.Lease > 0 {
		allowed = denyLeasesLocked(calls, buckets, decisions) && allowed
	}
	for _, b := range buckets {
		b.release(allowed)
	}
	for i := range calls {
		c := &calls[i]
		if !allowed || c.request.tokens == 0 {
			continue
		}
		leases := &c.shard.leases
		leases.byKey[c.hash].lower(c.missing)
		if !take.Receipt {
			continue
		}
		d, length := &decisions[i], take.Lease
		if length == 0 {
			length = adapter.ExactUndo + take.MaxWait
		}
		d.Receipt = c.shard.table.Load().receipt(&c.request)
		leases.addLocked(c.hash, &d.Receipt, length.Microseconds(), c.missing, take.Lease > 0)
	}
	return decisions, nil
}

// lockLeases locks the leases of all shards in the order of their addresses, and applies those that have
// ended. Calls for the keys that come later are tracked.
func lockLeases(calls []batchCall, tracks bool) []*sync.Mutex {
	all := make([]*leases, len(calls))
	for i := range calls {
		all[i] = &calls[i].shard.leases
	}
	all = sortedByAddress(all)
	locks := make([]*sync.Mutex, len(all))
	for i, s := range all {
		locks[i] = &s.mu
		locks[i].Lock()
	}
	for i := range calls {
		c := &calls[i]
		c.shard.leases.endLocked(c.limiter)
		if tracks {
			c.shard.leases.prepareLocked(c.hash)
		}
	}
	return locks
}

// cleanLeases ends what lockLeases began for keys that are tracked.
func cleanLeases(calls []batchCall, tracks bool) {
	for i := range calls {
		if c := &calls[i]; tracks {
			c.shard.leases.cleanLocked(c.hash)
		}
	}
}

// denyLeasesLocked denies each call whose key has as many leases as it may, and reports whether there
// is none.
func denyLeasesLocked(calls []batchCall, buckets []heldBucket, decisions []limit.Decision) bool {
	none := true
	for i := range calls {
		c, d := &calls[i], &decisions[i]
		wait := c.shard.leases.waitLocked(c.hash, c.limiter)
		if wait == 0 {
			continue
		}
		none = false
		if d.Allowed {
			t := c.shard.table.Load()
			missing, _ := t.missing(buckets[c.bucket].old, c.limiter.now(t))
			*d = t.decision(t.units.Full()-missing, &request{kind: look})
			d.Allowed = false
		}
		d.RetryAfter = max(d.RetryAfter, wait)
	}
	return none
}

func unlockAll(locks []*sync.Mutex) {
	for _, mu := range locks {
		mu.Unlock()
	}
}

// sortedByAddress returns each pointer once, in the order in which all batches lock them.
func sortedByAddress[T any](pointers []*T) []*T {
	slices.SortFunc(pointers, func(a, b *T) int {
		return cmp.Compare(reflect.ValueOf(a).Pointer(), reflect.ValueOf(b).Pointer())
	})
	return slices.Compact(pointers)
}

// lockShards locks the shards of all calls in the order of their addresses, in which all batches
// lock them, and returns them.
func lockShards(calls []batchCall) []*sync.Mutex {
	shards := make([]*shard, len(calls))
	for i := range calls {
		shards[i] = calls[i].shard
	}
	shards = sortedByAddress(shards)
	locks := make([]*sync.Mutex, len(shards))
	for i, s := range shards {
		locks[i] = &s.mu
		locks[i].Lock()
	}
	return locks
}

// holdBucketsLocked finds or adds the bucket of each call and holds it. Callers that meet a held
// bucket wait; a held bucket is not evicted. It needs mu of all shards.
func holdBucketsLocked(calls []batchCall) []heldBucket {
	buckets := make([]heldBucket, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		hash := c.hash
		c.bucket = indexOf(buckets, c.shard, hash)
		if c.bucket >= 0 {
			continue // two keys have one hash
		}
		found := c.shard.bucketForLocked(hash, &c.request, c.limiter)
		if found == &c.shard.overflow {
			hash = 0
			if c.bucket = indexOf(buckets, c.shard, 0); c.bucket >= 0 {
				continue
			}
		}
		old := found.bucket.Load()
		for hash != 0 && !found.bucket.CompareAndSwap(old, held) {
			old = found.bucket.Load()
		}
		c.bucket = len(buckets)
		buckets = append(buckets, heldBucket{c.shard, hash, old, old})
	}
	return buckets
}

func indexOf(buckets []heldBucket, s *shard, hash uint64) int {
	return slices.IndexFunc(buckets, func(b heldBucket) bool { return b.shard == s && b.hash == hash })
}

// decideBatch decides each call by the values of the buckets and what the calls before it take.
func decideBatch(calls []batchCall, buckets []heldBucket) (decisions []limit.Decision, allowed bool) {
	decisions, allowed = make([]limit.Decision, len(calls)), true
	for i := range calls {
		c := &calls[i]
		b, t := &buckets[c.bucket], c.shard.table.Load()
		units, ahead := c.request.units(&t.units)
		t.raiseAhead(ahead)
		now := c.limiter.now(t)
		c.request.at = now
		if left := blockLeft(b.value, now); left > 0 {
			decisions[i], allowed = t.decision(blocked-left, &c.request), false
			continue
		}
		missing, clockWentBack := t.missing(b.value, now)
		if c.missing = missing; b.hash == 0 {
			c.missing = untracked
		}
		if clockWentBack {
			t.lower(b.value)
			b.old, b.value = now+missing, now+missing // even if the batch is denied
		}
		decisions[i] = t.decision(t.units.Full()-missing, &c.request)
		switch {
		case units > 0 && units > t.units.Full()-missing+ahead:
			allowed = false
		case units > 0:
			b.value = now + missing + units
		}
	}
	return decisions, allowed
}

// release stores the value of a bucket after the batch. The table may have been replaced since
// the bucket was held.
func (b *heldBucket) release(allowed bool) {
	at := &b.shard.overflow
	if b.hash != 0 {
		at = b.shard.lookupLocked(b.hash)
	}
	if allowed {
		at.bucket.Store(b.value)
	} else {
		at.bucket.Store(b.old)
	}
}
