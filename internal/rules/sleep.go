package rules

import (
	"context"
	"time"
)

// Sleep returns after d, or earlier with the error of ctx. It returns nil at once if d is not positive.
func Sleep(ctx context.Context, d time.Duration) error {
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
