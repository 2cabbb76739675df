package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// A recordStore answers every call with a reply, and records what it was asked.
type recordStore struct {
	reply RecordReply
	takes []RecordTake
	now   time.Duration
}

func (s *recordStore) call(what RecordTake) (RecordReply, error) {
	s.takes = append(s.takes, what)
	s.reply.Sent, s.reply.Received = s.now, s.now
	return s.reply, nil
}

func (s *recordStore) take(t *testing.T, p *RecordPolicy, take limit.Take) limit.Decision {
	t.Helper()
	d, _, err := p.Take(1, &take, func() time.Duration { return s.now }, s.call)
	require.NoError(t, err)
	return d
}

func ofTen() *RecordPolicy {
	return NewRecordPolicy(limit.Description{Name: "p", Limit: 10, Window: time.Minute})
}

// denied is a reply about a key that lacks all tokens from 4 on for 300 ms, and 9 and 10 for 500 ms.
func denied(retryAfter time.Duration) RecordReply {
	return RecordReply{
		Outcome: OutcomeDenied, Used: 7, RetryAfter: retryAfter, ResetAfter: time.Second,
		MoreAfter: 300 * time.Millisecond, AllAfter: 500 * time.Millisecond,
	}
}

func TestRecordPolicy_RemembersDenialsOfCostsThatLackAsLong(t *testing.T) {
	for _, tt := range []struct {
		cost       int64
		retryAfter time.Duration
		remembered []int64
	}{
		{6, 300 * time.Millisecond, []int64{4, 5, 6}},
		{6, 400 * time.Millisecond, []int64{6}},
		{9, 500 * time.Millisecond, []int64{9, 10}},
	} {
		p, s := ofTen(), &recordStore{reply: denied(tt.retryAfter)}
		s.take(t, p, limit.Take{Cost: tt.cost})
		var remembered []int64
		for cost := range int64(12) {
			if d, ok := p.Remembered(1, &limit.Take{Cost: cost}, 100*time.Millisecond); ok {
				remembered = append(remembered, cost)
				assert.Equal(t, tt.retryAfter-100*time.Millisecond, d.RetryAfter)
			}
		}
		assert.Equal(t, tt.remembered, remembered)
		_, ok := p.Remembered(1, &limit.Take{Cost: tt.cost, MaxWait: time.Second}, 0)
		assert.False(t, ok, "a call that may wait may be allowed")
		_, ok = p.Remembered(2, &limit.Take{Cost: tt.cost}, 0)
		assert.False(t, ok, "another key")
		_, ok = p.Remembered(1, &limit.Take{Cost: tt.cost}, 300*time.Millisecond)
		assert.False(t, ok, "the key has more tokens")
		p.Invalidate(1, 0)
		_, ok = p.Remembered(1, &limit.Take{Cost: tt.cost}, 0)
		assert.False(t, ok)
	}
}

// TestRecordPolicy_CoarseClock has a store whose clock shows whole ticks of 10 ms.
func TestRecordPolicy_CoarseClock(t *testing.T) {
	p, s := ofTen(), &recordStore{reply: denied(300*time.Millisecond + time.Microsecond)}
	s.reply.MoreAfter, s.reply.Tick = s.reply.RetryAfter, 10*time.Millisecond
	d := s.take(t, p, limit.Take{Cost: 6})
	assert.Equal(t, 310*time.Millisecond, d.RetryAfter)
	assert.Equal(t, time.Second, d.ResetAfter)
	d, ok := p.Remembered(1, &limit.Take{Cost: 6}, 290*time.Millisecond)
	assert.True(t, ok)
	assert.Equal(t, 20*time.Millisecond, d.RetryAfter, "the wait ends at a tick")
	_, ok = p.Remembered(1, &limit.Take{Cost: 6}, 290*time.Millisecond+time.Microsecond)
	assert.False(t, ok, "the store may have read its clock a tick before the request was sent")
}

func TestRecordPolicy_ReceiptsOfAnEarlierPolicyReturnNothing(t *testing.T) {
	first, s := ofTen(), &recordStore{reply: RecordReply{Used: 2, Taken: 2, Stamp: 7}}
	receipt := s.take(t, first, limit.Take{Cost: 2, Receipt: true}).Receipt
	assert.Equal(t, limit.Receipt{Tokens: 2, Stamp: 7}, receipt)
	second := NewRecordPolicy(limit.Description{Name: "p", Limit: 11, Window: time.Minute}).Following(first)
	s.takes = nil
	s.take(t, second, limit.Take{Mode: mode.Undoing, Undo: &receipt})
	assert.Empty(t, s.takes)
	s.take(t, first, limit.Take{Mode: mode.Undoing, Undo: &receipt})
	s.take(t, ofTen().Following(first), limit.Take{Mode: mode.Undoing, Undo: &receipt})
	undo := RecordTake{What: Undo, Cost: 2, Stamp: 7}
	assert.Equal(t, []RecordTake{undo, undo}, s.takes, "the same numbers are no change")
}

func TestRecordPolicy_QuotaChangesWithItsCalendar(t *testing.T) {
	policy := limit.QuotaPolicy{Name: "p", Max: 10, Period: limit.Month, Location: time.FixedZone("A", 3600)}
	elsewhere, starts := policy, policy
	elsewhere.Location = time.FixedZone("B", 7200)
	starts.Start = func(limit.Key) time.Time { return time.Time{} }
	first := NewQuotaPolicy(policy)
	assert.Equal(t, first.version, NewQuotaPolicy(policy).Following(first).version)
	assert.NotEqual(t, first.version, NewQuotaPolicy(elsewhere).Following(first).version)
	first = NewQuotaPolicy(starts)
	assert.NotEqual(t, first.version, NewQuotaPolicy(starts).Following(first).version, "two functions cannot be compared")
}

// TestJoint_LearnsWhatAllDecide has a limiter that would allow a take which another one denies.
func TestJoint_LearnsWhatAllDecide(t *testing.T) {
	p, s := ofTen(), &recordStore{reply: denied(300 * time.Millisecond)}
	s.take(t, p, limit.Take{Cost: 6})
	remembers := func() bool {
		_, ok := p.Remembered(1, &limit.Take{Cost: 6}, 0)
		return ok
	}
	partOf := func(take limit.Take) *part {
		return &part{Part: Part{Request: &Request{Record: p.taking(&take)}}, policy: &policy{record: p}, hash: 1, take: take}
	}
	one := partOf(limit.Take{Cost: 1, Receipt: true})
	assert.Equal(t, RecordTake{What: TakeAll, Cost: 1}, one.Request.Record)
	reply := Reply{Record: RecordReply{Used: 8, Taken: 0}}
	d := one.decide(&reply, false)
	one.learn(&d, false, &reply)
	assert.True(t, remembers(), "nothing was taken")
	one.learn(&d, true, &reply)
	assert.False(t, remembers(), "a larger cost is denied for longer now")

	never, reply := partOf(limit.Take{Cost: 11}), Reply{Record: RecordReply{Used: 7}}
	d = never.decide(&reply, false)
	assert.Equal(t, limit.Decision{Limit: 10, Remaining: 3, RetryAfter: limit.Never}, d)
	never.learn(&d, false, &reply)
	assert.False(t, remembers())
}

func TestPolicies_WithoutMemoryAskTheStore(t *testing.T) {
	s := &recordStore{reply: denied(time.Second)}
	p := NewRecordPolicy(limit.Description{Name: "p", Limit: 10, Window: time.Minute}).Following(NewRecordPolicy(limit.Description{}))
	for range 2 {
		s.take(t, p.WithoutMemory(), limit.Take{Cost: 8})
	}
	assert.Len(t, s.takes, 2)
	_, ok := p.Remembered(1, &limit.Take{Cost: 8}, 0)
	assert.False(t, ok)
	s.reply = RecordReply{Outcome: OutcomeAllowed, Used: 3, Taken: 3, Stamp: 7}
	receipt := s.take(t, p.WithoutMemory(), limit.Take{Cost: 3, Receipt: true}).Receipt
	assert.Equal(t, limit.Receipt{Tokens: 3, Stamp: 7, Version: 1}, receipt, "the policy itself can undo it")

	buckets := NewPolicy(limit.PerHour(1), NewPolicy(limit.PerHour(2), nil))
	assert.Equal(t, buckets.version, buckets.WithoutMemory().version)
	assert.Equal(t, buckets.Units, buckets.WithoutMemory().Units)
}
