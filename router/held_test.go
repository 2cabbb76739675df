package router_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestFollower_ClientOfManyTopicsRecoversWhatFitsIntoTheQueue sends 50 subscriptions at once, which
// have missed more than the send queue holds. A connection that is closed because of that would be
// closed again when the client returns.
func TestFollower_ClientOfManyTopicsRecoversWhatFitsIntoTheQueue(t *testing.T) {
	const topics, each = 50, 30
	for name, limits := range map[string]router.Limits{
		"messages": {QueueMessages: 400},
		"bytes":    {QueueBytes: 400 * 250},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newFeedRouterWith(limits)
			epochs := make([]string, topics)
			for n := range epochs {
				for range each {
					at, err := publishStored(t.Context(), r, fmt.Sprintf("feed/%d", n), Blob{Text: strings.Repeat("x", 140)})
					require.NoError(t, err)
					epochs[n] = at.Epoch
				}
			}
			client := routertest.Dial(t, r)
			client.Pause()
			time.AfterFunc(time.Second, client.Resume) // the server does not read while the client does not
			for n, epoch := range epochs {
				client.SendText(fmt.Sprintf(`{"type":"$ws:subscribe","meta":{"correlationId":"s%d"},"payload":{"topic":"feed/%d","epoch":%q,"offset":0}}`, n, n, epoch))
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			answers, recovered, publications := 0, 0, 0
			for client.Pending() > 0 {
				frame := client.Next()
				if frame.Type == "BLOB" {
					publications++
					continue
				}
				require.Equal(t, "$ws:subscribed", frame.Type, frame.Text)
				var answer subscribed
				require.NoError(t, json.Unmarshal(frame.Payload, &answer))
				if answers++; answer.Recovered {
					recovered++
					assert.Zero(t, answer.Offset)
				} else {
					assert.EqualValues(t, each, answer.Offset)
				}
			}
			assert.Equal(t, topics, answers)
			assert.Equal(t, each*recovered, publications)
			assert.GreaterOrEqual(t, recovered, 5)
			assert.Less(t, recovered, topics)
			assert.Len(t, collect(r), 1, "the connection is open")
		})
	}
}

func newFeedRouterWith(limits router.Limits) *router.Router {
	r := router.New(&router.Options{Limits: limits})
	router.Topic(r, "feed/{name}", &router.TopicOptions{
		History: router.History{Messages: 100}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	return r
}
