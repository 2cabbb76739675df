package rules_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/rules"
)

func TestFor_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		assert.ErrorIs(t, rules.Sleep(ctx, time.Minute), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

func TestFor_ReturnsAfterTheDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		assert.NoError(t, rules.Sleep(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(begin))
	})
}
