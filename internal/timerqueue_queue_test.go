package internal_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/timerqueue"
)

// An alarm remembers when it has fired.
type alarm struct {
	place int32
	fired []time.Duration
	start time.Time
}

func (a *alarm) Place() *int32 { return &a.place }
func (a *alarm) Fire()         { a.fired = append(a.fired, time.Since(a.start)) }

// TestQueue_FiresLikeTimers compares the queue with a list of times, over random changes.
func TestQueue_FiresLikeTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		start := time.Now()
		var q timerqueue.Queue[*alarm]
		alarms, due := make([]*alarm, 50), make([]time.Duration, 50) // due is 0 if the alarm is not set
		wants := make([][]time.Duration, 50)
		for i := range alarms {
			alarms[i] = &alarm{start: start}
		}
		for range 20_000 {
			i := rng.IntN(len(alarms))
			if rng.IntN(4) == 0 {
				q.Stop(alarms[i])
				due[i] = 0
			} else {
				d := time.Duration(1 + rng.IntN(1000))
				q.Set(alarms[i], d)
				due[i] = time.Since(start) + d
			}
			if rng.IntN(3) > 0 {
				continue
			}
			time.Sleep(time.Duration(rng.IntN(200)))
			synctest.Wait()
			for i, at := range due {
				if at > 0 && at <= time.Since(start) {
					wants[i], due[i] = append(wants[i], at), 0
				}
			}
		}
		total := 0
		for i, a := range alarms {
			assert.Equal(t, wants[i], a.fired)
			total += len(a.fired)
		}
		assert.Greater(t, total, 1000)
	})
}

// An again sets itself again.
type again struct {
	alarm

	queue *timerqueue.Queue[*again]
}

func (a *again) Fire() {
	if a.alarm.Fire(); len(a.fired) < 3 {
		a.queue.Set(a, time.Second)
	}
}

func TestQueue_FireMaySetItsEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q timerqueue.Queue[*again]
		a := &again{alarm: alarm{start: time.Now()}, queue: &q}
		q.Set(a, time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, a.fired)
	})
}
