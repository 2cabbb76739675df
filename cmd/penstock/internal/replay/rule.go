package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/policytext"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A rule is the policy of one limiter. String returns it in the syntax of [ParsePolicy].
type rule interface {
	fmt.Stringer
	newLimiter(*memory.Simulation) limiter // panics if the rule is not valid
}

// A limiter is a limiter of adapters/memory.
type limiter interface {
	limit.Limiter
	Stats() adapter.Stats
}

type (
	tokenBucket    struct{ limit.Policy }
	slidingLog     struct{ limit.WindowPolicy }
	slidingCounter struct{ limit.WindowPolicy }
	quota          struct{ limit.QuotaPolicy }
	cooldown       struct{ limit.CooldownPolicy }
)

func (r tokenBucket) newLimiter(s *memory.Simulation) limiter { return s.NewLimiter(r.Policy) }
func (r slidingLog) newLimiter(s *memory.Simulation) limiter  { return s.NewSlidingLog(r.WindowPolicy) }

func (r slidingCounter) newLimiter(s *memory.Simulation) limiter {
	return s.NewSlidingCounter(r.WindowPolicy)
}
func (r quota) newLimiter(s *memory.Simulation) limiter { return s.NewQuota(r.QuotaPolicy) }
func (r cooldown) newLimiter(s *memory.Simulation) limiter {
	return s.NewCooldown(r.CooldownPolicy, nil)
}

func (r slidingLog) String() string {
	return "sliding-log " + policytext.FormatRate(r.Max, r.Window)
}

func (r slidingCounter) String() string {
	return "sliding-counter " + policytext.FormatRate(r.Max, r.Window)
}

func (r quota) String() string { return policytext.FormatQuota(r.QuotaPolicy) }

func (r cooldown) String() string {
	return "cooldown " + policytext.FormatRate(r.Max, r.Window) + " penalty " + durationText(r.Penalty)
}

// durationText formats a duration without trailing zero units: 1h, not 1h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}
