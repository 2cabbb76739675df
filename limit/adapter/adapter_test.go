package adapter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// TestBounds_AreThoseOfPackageLimit compares them with what package limit accepts.
func TestBounds_AreThoseOfPackageLimit(t *testing.T) {
	assert.NoError(t, limit.Take{MaxWait: adapter.MaxReserve}.Validate())
	assert.Error(t, limit.Take{MaxWait: adapter.MaxReserve + 1}.Validate())
	log := limit.WindowPolicy{Max: adapter.MaxLog, Window: time.Second}
	assert.NoError(t, log.ValidateLog())
	log.Max++
	assert.Error(t, log.ValidateLog())
	quota := limit.QuotaPolicy{Max: adapter.MaxDeficit / 2}
	assert.NoError(t, quota.Validate())
	quota.Max++
	assert.Error(t, quota.Validate())
}

// TestCheck_AsksTheLimiter includes one that says nothing about what it can do.
func TestCheck_AsksTheLimiter(t *testing.T) {
	cooldown := memory.NewCooldown(limit.CooldownPolicy{Max: 1, Window: time.Second, Penalty: time.Second}, nil)
	assert.NoError(t, adapter.Check(cooldown, limit.Take{Cost: 1}))
	assert.ErrorContains(t, adapter.Check(cooldown, limit.Take{Mode: mode.Charging}), "cooldowns cannot")
	assert.ErrorContains(t, adapter.Check(struct{ limit.Limiter }{}, limit.Take{Cost: -1}), "cost is -1")
}

func TestCheckBlock(t *testing.T) {
	for d, ok := range map[time.Duration]bool{0: false, time.Microsecond: true, 365 * 24 * time.Hour: true, 365*24*time.Hour + 1: false} {
		assert.Equal(t, ok, adapter.CheckBlock(d) == nil, d)
	}
}
