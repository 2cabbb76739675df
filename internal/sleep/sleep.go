// Package sleep waits, unless a context ends first.
package sleep

import (
	"context"
	"time"
)

// For returns after d, or earlier with the error of ctx. It returns nil at once if d is not positive.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
