package batch

import (
	"fmt"

	"github.com/penstock-go/penstock/limit"
)

// CheckPolicy returns an error unless a policy may replace that of a limiter whose policy has a name,
// which may be empty: the name, or the numbers without one, name the buckets in the store.
func CheckPolicy(name string, policy limit.Policy) error {
	if name == "" {
		return fmt.Errorf("the policy %v has no name, so its numbers name its buckets; give it a name to change it", policy)
	}
	if policy.Name != name {
		return fmt.Errorf("the policy is named %q; SetPolicy needs one named %q", policy.Name, name)
	}
	return policy.Validate()
}
