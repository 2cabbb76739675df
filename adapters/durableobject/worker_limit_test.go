package durableobject_test

import (
	"github.com/penstock-go/penstock/limit"
)

// perSecond is a policy whose units are microseconds: a token is 100,000 units.
var perSecond = limit.Policy{Capacity: 10, Refill: 10}
