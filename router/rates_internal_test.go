package router

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestAddresses_IdleOnesAreForgotten has a client that changes its network with each request.
func TestAddresses_IdleOnesAreForgotten(t *testing.T) {
	g := &registry{}
	g.init((*Options)(nil).withDefaults().Limits)
	most := 0
	for n := range 20_000 {
		var ip [16]byte
		binary.BigEndian.PutUint64(ip[:], 0x2001_0db8_0000_0000+uint64(n))
		if _, refusal := g.chargeHandshake(netip.AddrFrom16(ip), time.Duration(n)*time.Millisecond); refusal != nil {
			t.Fatal(refusal.failure.Cause)
		}
		most = max(most, len(g.perIP))
	}
	assert.Less(t, most, 200)
}

// TestRateBucket_GrantsNoMoreThanItsRate compares random calls with the definition: in every
// interval, no more than the burst and what returns in the interval.
func TestRateBucket_GrantsNoMoreThanItsRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r := Rate{1 + rng.IntN(2000), 1 + rng.IntN(50)}
		var b rateBucket
		var now time.Duration
		type grant struct {
			at     time.Duration
			tokens int
		}
		var grants []grant
		for range 300 {
			now += time.Duration(rng.Int64N(int64(4 * time.Second / time.Duration(r.PerSecond))))
			tokens := 1 + rng.IntN(3)
			if refusal := b.take(r, now, tokens, "x"); refusal == nil {
				grants = append(grants, grant{now, tokens})
			} else if tokens <= r.Burst {
				var copied rateBucket
				copied.fullAt.Store(b.fullAt.Load())
				assert.Nil(t, copied.take(r, now+refusal.RetryAfter, tokens, "x"), "after RetryAfter")
			}
		}
		for i := range grants {
			sum := 0
			for _, g := range grants[i:] {
				sum += g.tokens
				allowed := float64(r.Burst) + (g.at-grants[i].at).Seconds()*float64(r.PerSecond)
				if float64(sum) > allowed+1e-3 {
					t.Fatalf("%d tokens between %v and %v, allowed are %.3f", sum, grants[i].at, g.at, allowed)
				}
			}
		}
	}
}
