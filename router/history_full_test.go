package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestHistory_FullMemory fills the memory of the histories of two nodes: publishers get an error, and
// subscribers and returning clients miss nothing that was stored.
func TestHistory_FullMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBrokerMaxHistoryBytes(200_000)
		h := router.History{Messages: 10_000, Age: time.Minute}
		nodes := []*router.Router{newFeedRouter(b, h), newFeedRouter(b, h)}
		connected, returning := &feed{t: t}, &feed{t: t}
		connected.subscribe(nodes[1])
		returning.subscribe(nodes[1])
		publisher := routertest.Dial(t, nodes[0])
		synctest.Wait()

		stored := 0
		publish := func() error {
			err := nodes[0].Publish("feed/a", Blob{Text: fmt.Sprint(stored+1, strings.Repeat(" ", 100))}, router.Stored(t.Context(), nil))
			if err == nil {
				stored++
			}
			return err
		}
		for stored < 200 {
			require.NoError(t, publish())
		}
		synctest.Wait()
		returning.receive()
		returning.client.Close()
		var err error
		for err == nil && stored < 10_000 {
			err = publish()
			synctest.Wait()
			connected.receive()
		}
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
		for i := range 1000 { // reading needs no memory
			_, _, err = nodes[0].ReadHistory(t.Context(), fmt.Sprint("feed/", i), broker.Query{})
			require.NoError(t, err)
		}
		for range 10 {
			assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(publish()))
		}
		publisher.Send(Blob{Text: strings.Repeat(" ", 100)})
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(publisher).Code)
		for _, want := range []string{"positions", "state"} {
			publisher.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/new","` + want + `":true}}`)
			assert.Equal(t, "$ws:subscribed", publisher.Next().Type, want)
		}

		synctest.Wait()
		connected.receive()
		assert.Len(t, connected.texts, stored)
		require.LessOrEqual(t, stored-200, 1024/2, "more are not recovered")
		returning.subscribe(nodes[0])
		synctest.Wait()
		returning.receive()
		assert.Len(t, returning.texts, stored)
		assert.Equal(t, 1, returning.recovers)

		time.Sleep(h.Age + time.Second) // older publications expire
		before := stored
		for attempt := 0; stored < before+100 && attempt < 200; attempt++ {
			_ = publish()
		}
		assert.Equal(t, before+100, stored)
		synctest.Wait()
		connected.receive()
		require.Len(t, connected.texts, stored)
		for i, text := range connected.texts {
			require.Equal(t, fmt.Sprint(i+1), strings.TrimSpace(text))
		}
	})
}
