package calls_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/calls"
)

// TestIndex_CallsExpire lets calls with a timeout of 5 seconds begin 1 second after the index was created.
func TestIndex_CallsExpire(t *testing.T) {
	type expiry struct {
		id string
		at time.Duration
	}
	for name, tt := range map[string]struct {
		run  func(index *calls.Index[message], begin func(id string, timeout time.Duration) *message)
		want []expiry
	}{
		"without timeout": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				index.Add(&begin("a", 0).call)
			},
		},
		"settled in time": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				m := begin("a", 5*time.Second)
				index.Add(&m.call)
				time.Sleep(5*time.Second - 1)
				index.Settle(&m.call)
			},
		},
		"settled before it is added": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				index.Remove(&begin("a", 5*time.Second).call)
			},
		},
		"never added": {
			run: func(_ *calls.Index[message], begin func(string, time.Duration) *message) {
				begin("a", 5*time.Second)
			},
			want: []expiry{{"a", 6 * time.Second}},
		},
		"added late": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				m := begin("a", 5*time.Second)
				time.Sleep(time.Second)
				index.Add(&m.call)
			},
			want: []expiry{{"a", 6 * time.Second}},
		},
		"each at its own time": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				for id, timeout := range map[string]time.Duration{"slow": 7 * time.Second, "fast": 2 * time.Second, "never": 0} {
					index.Add(&begin(id, timeout).call)
				}
			},
			want: []expiry{{"fast", 3 * time.Second}, {"slow", 8 * time.Second}},
		},
		"timeout becomes shorter before it is added": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				m := begin("a", 5*time.Second)
				assert.True(t, index.Unwatch(&m.call))
				m.call.Timeout = time.Second
				index.Watch(&m.call)
				index.Add(&m.call)
			},
			want: []expiry{{"a", 2 * time.Second}},
		},
		"watched again without timeout": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				m := begin("a", 0)
				assert.True(t, index.Unwatch(&m.call))
				index.Watch(&m.call)
			},
		},
		"unwatched too late": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				m := begin("a", 5*time.Second)
				time.Sleep(5*time.Second + 1)
				assert.False(t, index.Unwatch(&m.call))
			},
			want: []expiry{{"a", 6 * time.Second}},
		},
		"stopped": {
			run: func(index *calls.Index[message], begin func(string, time.Duration) *message) {
				begin("a", 5*time.Second)
				index.Stop()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var index calls.Index[message]
				var mu sync.Mutex
				var got []expiry
				index.Deadlines = &calls.Deadlines[message]{Base: start, Expired: func(m *message) {
					mu.Lock()
					got = append(got, expiry{m.call.ID, time.Since(start)})
					mu.Unlock()
					index.Settle(&m.call)
				}}
				time.Sleep(time.Second)
				tt.run(&index, func(id string, timeout time.Duration) *message {
					m := newMessage(id)
					m.call.ReceivedAt, m.call.Timeout = time.Now(), timeout
					index.Watch(&m.call)
					return m
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, tt.want, got)
			})
		})
	}
}

// TestDeadlines_AreSharedByConnections has one call on each of two connections.
func TestDeadlines_AreSharedByConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := make(chan string, 2)
		deadlines := &calls.Deadlines[message]{Base: time.Now(), Expired: func(m *message) { expired <- m.call.ID }}
		for id, timeout := range map[string]time.Duration{"first": time.Second, "second": 2 * time.Second} {
			m := newMessage(id)
			m.call.ReceivedAt, m.call.Timeout = time.Now(), timeout
			(&calls.Index[message]{Deadlines: deadlines}).Watch(&m.call)
		}
		assert.Equal(t, "first", <-expired)
		assert.Equal(t, time.Second, time.Since(deadlines.Base))
		assert.Equal(t, "second", <-expired)
		assert.Equal(t, 2*time.Second, time.Since(deadlines.Base))
	})
}
