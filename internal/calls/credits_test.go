package calls_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/calls"
)

func TestCredits_AwaitEnds(t *testing.T) {
	const patience = time.Minute
	for name, tt := range map[string]struct {
		credits *calls.Credits
		during  func(credits *calls.Credits, cancel context.CancelFunc) // while Await waits
		want    error
		after   time.Duration
	}{
		"never granted":       {credits: calls.NewCredits(0), want: calls.ErrUngranted, after: patience},
		"grant of none":       {calls.NewCredits(0), func(k *calls.Credits, _ context.CancelFunc) { k.Grant(0) }, calls.ErrUngranted, patience},
		"canceled":            {calls.NewCredits(0), func(_ *calls.Credits, cancel context.CancelFunc) { cancel() }, context.Canceled, time.Second},
		"granted":             {calls.NewCredits(0), func(k *calls.Credits, _ context.CancelFunc) { k.Grant(1) }, nil, time.Second},
		"enough at first":     {credits: calls.NewCredits(1)},
		"client gives none":   {credits: nil},
		"grant without limit": {nil, func(k *calls.Credits, _ context.CancelFunc) { k.Grant(1) }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.during != nil {
					time.AfterFunc(time.Second, func() { tt.during(tt.credits, cancel) })
				}
				assert.Equal(t, tt.want, tt.credits.Await(ctx, patience))
				assert.Equal(t, tt.after, time.Since(start))
				time.Sleep(time.Second)
			})
		})
	}
}
