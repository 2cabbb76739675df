package ratelimit

import (
	"context"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/router"
)

// Access returns the ingress function that rejects the messages of clients that a list denies with
// PERMISSION_DENIED, and limits no message. With a limit, set [Options.Access] instead. key is as
// [Options.AccessKey]. Access panics if list is nil.
func Access(list *access.List, key func(router.IngressContext) limit.Key) router.IngressFunc {
	if list == nil {
		panic("ratelimit: Access needs a list")
	}
	if key == nil {
		key = KeyPerUser
	}
	return func(_ context.Context, in router.IngressContext) error {
		if list.Lookup(key(in), in.IP) == access.Denied {
			return enforce.ErrDenied
		}
		return nil
	}
}
