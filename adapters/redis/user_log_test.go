package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-go/penstock/router"
)

func shutdownAfter(t *testing.T, r *router.Router, before func()) {
	t.Cleanup(func() {
		before()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.Shutdown(ctx)
	})
}
