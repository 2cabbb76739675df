package calls

import (
	"math"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestCredits_Saturate(t *testing.T) {
	k := Credits{left: math.MaxInt64 - 1}
	for _, n := range []int64{1, 1, 1<<53 - 1, math.MaxInt64, 0} {
		k.Grant(n)
		assert.Equal(t, int64(math.MaxInt64), k.left)
	}
	assert.Nil(t, k.take())
}

// TestCredits_GrantWakesEveryProducer lets three goroutines of one stream wait for two credits.
func TestCredits_GrantWakesEveryProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Credits{}
		took := make(chan struct{}, 3)
		for range 3 {
			go func() {
				for granted := k.take(); granted != nil; granted = k.take() {
					<-granted
				}
				took <- struct{}{}
			}()
		}
		synctest.Wait()
		k.Grant(0)
		synctest.Wait()
		assert.Empty(t, took)
		k.Grant(2)
		synctest.Wait()
		assert.Len(t, took, 2)
		k.Grant(1)
		synctest.Wait()
		assert.Len(t, took, 3)
	})
}
