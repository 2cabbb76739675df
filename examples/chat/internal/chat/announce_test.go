package chat

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router/routertest"
)

// The costs and the scope are those that the limit enforces.
func TestRateLimit_IsAnnounced(t *testing.T) {
	ann := routertest.Dial(t, newChat(t, "-capacity=7", "-refill=2", "-key=conn"), withToken("ann"))
	ann.SendText(`{"type":"$ws:hello","meta":{"correlationId":"1"}}`)
	var welcome struct {
		Payload struct {
			Limits []struct {
				Capacity, Refill, RefillMs int64
				Scope                      string
				Buckets                    []struct{ Costs map[string]int64 }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(ann.Next().Text), &welcome))
	require.Len(t, welcome.Payload.Limits, 1)
	l := welcome.Payload.Limits[0]
	assert.Equal(t, []int64{7, 1, 500}, []int64{l.Capacity, l.Refill, l.RefillMs})
	assert.Equal(t, "connection", l.Scope)
	require.Len(t, l.Buckets, 1)
	assert.EqualValues(t, 1, l.Buckets[0].Costs["SAY"])
	assert.EqualValues(t, searchCost, l.Buckets[0].Costs["SEARCH_HISTORY"])
}
