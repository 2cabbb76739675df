package keyname

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// OfPolicy returns the name of a policy, or its numbers if it has none.
func OfPolicy(p limit.Policy) string {
	if p.Name != "" {
		return p.Name
	}
	per := p.Per
	if per == 0 {
		per = time.Second
	}
	return fmt.Sprintf("%d-per-%s-burst-%d", p.Refill, per, p.Capacity)
}

// OfWindow is [OfPolicy] for sliding windows.
func OfWindow(p limit.WindowPolicy) string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprintf("%d-in-%s", p.Max, p.Window)
}

// OfCooldown is [OfPolicy] for cooldowns.
func OfCooldown(p limit.CooldownPolicy) string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprintf("%d-in-%s-penalty-%s", p.Max, p.Window, p.Penalty)
}

// OfQuota is [OfPolicy] for quotas.
func OfQuota(p limit.QuotaPolicy) string {
	if p.Name != "" {
		return p.Name
	}
	location := "UTC"
	if p.Location != nil {
		location = p.Location.String()
	}
	name := fmt.Sprintf("%d-per-%s-in-%s", p.Max, p.Period, location)
	if p.Start != nil {
		name += "-from-start"
	}
	return name
}
