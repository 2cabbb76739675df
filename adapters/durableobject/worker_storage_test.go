package durableobject_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

func TestWorker_DenialWritesNoRow(t *testing.T) {
	w := startWorker(t, 1)
	token := adapter.UnitsOf(perSecond).PerToken()
	written := func(rows int64, now int64, calls ...limitCall) {
		t.Helper()
		before := w.stats(0).Written
		w.limit(now, perSecond, calls...)
		assert.Equal(t, rows, w.stats(0).Written-before)
	}
	w.limit(noon, perSecond, take("first", token)) // sets the alarm
	written(1, noon, take("k", 10*token))
	written(0, noon+1, take("k", token), take("k", 10*token), take("k", 0))
	written(0, noon+1, limitCall{"k", token, token, token}, limitCall{"k", 10 * token, 0, token}, limitCall{"k", token, -token / 2, token})
	written(0, noon+1, take("absent", 0), limitCall{"absent", -token, 0, 1}, limitCall{"absent", 10 * token, 1, 10 * token})
	written(1, noon+1e6, take("k", token), take("k", token), take("k", token), take("k", 20*token)) // one row per bucket
	written(2, noon+1e6, take("k", token), take("l", token), take("k", token), take("l", token))

	w.block(noon, "k", time.Hour)
	written(0, noon+1, take("k", token), limitCall{"k", -token, 0, 1}, take("k", 0))
	written(1, noon-1, take("k", token), take("k", token)) // moves the block with the clock
	assert.Equal(t, 3, w.stats(0).Records)
}

func TestWorker_ClearedStorageGrantsOneCapacity(t *testing.T) {
	w := startWorker(t, 1)
	full := adapter.UnitsOf(perSecond).Full()
	assert.Equal(t, []int64{full, 0}, w.limit(noon, perSecond, take("k", full), take("k", full)))
	w.Clear()
	assert.Equal(t, []int64{full, 0}, w.limit(noon, perSecond, take("k", full), take("k", full)))
}

// TestWorker_EvictionLosesNothing waits until the runtime removes idle objects from its memory, which
// takes 10 seconds.
func TestWorker_EvictionLosesNothing(t *testing.T) {
	t.Parallel()
	w := startWorker(t, 1)
	w.limit(noon, perSecond, take("k", 400_000))
	w.block(noon, "blocked", time.Hour)
	_, inUse := w.permit(noon, "k", "h", 2, acquire)
	require.Equal(t, int64(1), inUse)
	instance, alarm := w.stats(0).Instance, w.stats(0).Alarm
	time.Sleep(12 * time.Second)
	after := w.stats(0)
	require.NotEqual(t, instance, after.Instance)
	assert.Equal(t, alarm, after.Alarm)
	assert.Equal(t, []int64{600_000, -1<<52 - 3600e6}, w.limit(noon, perSecond, take("k", 0), take("blocked", 0)))
	_, inUse = w.permit(noon, "k", "i", 2, acquire)
	assert.Equal(t, int64(2), inUse)
	assert.Equal(t, alarm, w.stats(0).Alarm, "an alarm costs a row")
}

func TestWorker_SweepRemovesOnlyFullBuckets(t *testing.T) {
	w := startWorker(t, 1)
	start := time.Now().UnixMilli()
	w.limit(noon, perSecond, take("k", 10), take("l", 11))
	w.block(noon, "blocked", 12*time.Microsecond)
	w.permit(noon, "k", "h", 1, acquire)
	alarm := w.stats(0).Alarm
	require.NotNil(t, alarm)
	assert.InDelta(t, start+600_000, *alarm, 10_000)

	rows := func(now int64, buckets, leases int) {
		t.Helper()
		w.sweep(0, now)
		s := w.stats(0)
		assert.Equal(t, buckets, s.Records)
		assert.Equal(t, leases, s.Leases)
		assert.Equal(t, buckets+leases > 0, s.Alarm != nil)
	}
	rows(noon+9, 3, 1)
	rows(noon+10, 2, 1)
	rows(noon+11, 1, 1)
	rows(noon+12, 0, 1)
	rows(noon+9_999_999, 0, 1)
	rows(noon+10_000_000, 0, 0)

	w.limit(noon, perSecond, limitCall{"k", 100, -100, 1}) // a deficit is not a full bucket either
	rows(noon+99, 1, 0)
	rows(noon+100, 0, 0)
}

// TestWorker_AlarmRemovesAllRows lets the runtime run the alarm with its own clock.
func TestWorker_AlarmRemovesAllRows(t *testing.T) {
	w := startWorker(t, 1)
	policy := limit.Policy{Capacity: 1000, Refill: 1000}
	for batch := range 40 { // more rows than one sweep removes
		calls := make([]limitCall, 64)
		for i := range calls {
			calls[i] = take(fmt.Sprint(batch, ".", i), 1)
		}
		w.limit(0, policy, calls...)
	}
	w.block(0, "blocked", time.Hour)
	require.Equal(t, 40*64+1, w.stats(0).Records)
	w.operate("alarm", 0)
	require.Eventually(t, func() bool { return w.stats(0).Records == 1 }, time.Minute, 20*time.Millisecond)
	assert.InDelta(t, time.Now().Add(time.Hour).UnixMilli(), *w.stats(0).Alarm, 60_000)

	// A row that can be removed earlier than all others brings the alarm forward.
	w.limit(0, policy, take("k", 1))
	assert.InDelta(t, time.Now().Add(10*time.Minute).UnixMilli(), *w.stats(0).Alarm, 60_000)

	w.block(0, "blocked", 0)
	w.operate("alarm", 0)
	require.Eventually(t, func() bool {
		s := w.stats(0)
		return s.Records == 0 && s.Alarm == nil
	}, time.Minute, 20*time.Millisecond)
}

// TestWorker_AlarmSurvivesRestart: a new instance of the object knows its alarm.
func TestWorker_AlarmSurvivesRestart(t *testing.T) {
	w := startWorker(t, 1)
	w.limit(noon, perSecond, take("k", 1))
	alarm := w.stats(0).Alarm
	require.NotNil(t, alarm)
	for _, restart := range []func(){func() { w.operate("abort", 0) }, func() { w.Restart() }} {
		restart()
		before := w.stats(0)
		w.limit(noon, perSecond, take("l", 1))
		after := w.stats(0)
		assert.Equal(t, alarm, after.Alarm)
		assert.Equal(t, int64(1), after.Written-before.Written)
		w.block(noon, "l", 0)
	}
}

// TestWorker_LostAlarmIsSetAgain: the runtime drops an alarm that fails several times.
func TestWorker_LostAlarmIsSetAgain(t *testing.T) {
	w := startWorker(t, 1)
	w.limit(noon, perSecond, take("k", 1))
	lose := func(minutes string) {
		w.get("/test/lose-alarm", url.Values{"minutes": {minutes}})
		w.limit(noon, perSecond, take("k", 1))
	}
	lose("4") // it may still run
	assert.Nil(t, w.stats(0).Alarm)
	lose("6")
	require.NotNil(t, w.stats(0).Alarm)
	assert.InDelta(t, time.Now().Add(10*time.Minute).UnixMilli(), *w.stats(0).Alarm, 60_000)
}

func TestWorker_FailedObjectDecidesNothing(t *testing.T) {
	w := startWorker(t, 2)
	calls := make([]limitCall, 64)
	for i := range calls {
		calls[i] = take(fmt.Sprint(i), 1)
	}
	w.operate("fail", 1)
	reply := w.do(limitPath, noon, limitBody(perSecond, calls...))
	require.Len(t, reply.Replies, 64)
	decided := 0
	for _, held := range reply.Replies {
		if held != nil {
			decided++
		}
	}
	assert.Equal(t, w.stats(0).Records, decided)
	assert.InDelta(t, 32, decided, 20)
	assert.Zero(t, w.stats(1).Records)

	w.operate("fail", 0)
	status, reply, err := w.try(limitPath, noon, limitBody(perSecond, calls...))
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, response{V: 2, Error: "unavailable"}, reply)
}

func TestWorker_InvalidConfigurationDecidesNothing(t *testing.T) {
	w := startWorker(t, 1)
	for _, variables := range []map[string]string{
		{"SHARDS": "0"},
		{"SHARDS": "1025"},
		{"SHARDS": "1.5"},
		{"SHARDS": "many"},
		{"SHARDS_BEFORE": "-1"},
		{"SHARDS": "2", "HASH_SEED": ""},
		{"SHARDS_BEFORE": "2", "HASH_SEED": ""},
	} {
		w.Restart(func(o *workerdtest.Options) {
			o.Variables = map[string]string{"SECRET": w.Secret, "HASH_SEED": "seed"}
			maps.Copy(o.Variables, variables)
		})
		status, reply, err := w.try(limitPath, noon, limitBody(perSecond, take("k", 1)))
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, status, "%v", variables)
		assert.Equal(t, "unavailable", reply.Error)
	}
}
