package durableobject_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// perSecond is a policy whose units are microseconds: a token is 100,000 units.
var perSecond = limit.Policy{Capacity: 10, Refill: 10}

func TestWorker_TakesFromBucket(t *testing.T) {
	w := startWorker(t, 1)
	token := adapter.UnitsOf(perSecond).PerToken()
	assert.Equal(t, []int64{10 * token}, w.limit(noon, perSecond, take("a", 4*token)))
	assert.Equal(t, []int64{6 * token, 2 * token, 10 * token}, w.limit(noon, perSecond,
		take("a", 4*token), take("a", 4*token), take("b", 4*token)))
	assert.Equal(t, []int64{2*token + 5}, w.limit(noon+5, perSecond, take("a", 0)))
	w.Restart()
	assert.Equal(t, []int64{2*token + 5}, w.limit(noon+5, perSecond, take("a", 0)))
	w.Clear()
	assert.Equal(t, []int64{10 * token}, w.limit(noon+5, perSecond, take("a", 0)))
}

func TestWorker_Blocks(t *testing.T) {
	w := startWorker(t, 1)
	w.block(noon, "a", time.Hour)
	assert.Equal(t, []int64{-1<<52 - (time.Hour - time.Second).Microseconds()}, w.limit(noon+1e6, perSecond, take("a", 1)))
	w.block(noon, "a", 0)
	assert.Equal(t, []int64{adapter.UnitsOf(perSecond).Full()}, w.limit(noon, perSecond, take("a", 0)))
}
