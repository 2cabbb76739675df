package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMostRestrictive_PrefersDenialsAndLongestWait(t *testing.T) {
	few, many := Decision{Allowed: true, Remaining: 1}, Decision{Allowed: true, Remaining: 9}
	soon, late := Decision{RetryAfter: time.Second}, Decision{RetryAfter: time.Minute}
	reserved := Decision{Allowed: true, Remaining: 3, RetryAfter: time.Second}
	of := func(decisions ...Decision) Decision {
		return mostRestrictive(make([]Request, len(decisions)), decisions)
	}
	assert.Equal(t, few, of(many, few, many))
	assert.Equal(t, soon, of(few, soon, many))
	assert.Equal(t, late, of(soon, few, late, soon))
	assert.Equal(t, reserved, of(many, reserved, few), "the caller must wait for the last reservation")
}
