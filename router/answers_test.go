package router_test

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Sheet is a long reply.
type Sheet struct{ Text string }

func (Sheet) MessageType() string { return "SHEET" }

const sheetBytes = 100 << 10

// heapInUse returns the bytes of the heap that are in use, without those of pools.
func heapInUse() int {
	for range 2 { // the first one moves what is in a sync.Pool aside
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestConn_MessagesThatWaitAreNotEncoded has 64 handlers that send at the same time to a client that
// does not read. The sheets share their text, so that nearly all memory is that of encoded messages.
func TestConn_MessagesThatWaitAreNotEncoded(t *testing.T) {
	const calls, queueBytes = 64, 4 * sheetBytes
	sheet := Sheet{strings.Repeat("x", sheetBytes)}
	var ready chan struct{} // of the subtest
	for what, register := range map[string]func(*router.Router){
		"a reply": func(r *router.Router) {
			router.RPC(r, func(*router.Context, Count) (Sheet, error) { <-ready; return sheet, nil })
		},
		"an item": func(r *router.Router) {
			router.Stream(r, func(*router.Context, Count) iter.Seq2[Sheet, error] {
				return func(yield func(Sheet, error) bool) { <-ready; yield(sheet, nil) }
			})
		},
		"SendWait": func(r *router.Router) {
			router.RPC(r, func(ctx *router.Context, _ Count) (Counted, error) { <-ready; return Counted{}, ctx.SendWait(sheet) })
		},
	} {
		runSynctest(t, what, func(t *testing.T) {
			ready = make(chan struct{})
			r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueBytes: queueBytes}, Timeouts: patient}))
			register(r)
			client := routertest.Dial(t, r)
			for n := range calls {
				client.SendText(fmt.Sprintf(`{"type":"COUNT","meta":{"correlationId":"%d"},"payload":{"to":1}}`, n))
			}
			synctest.Wait()
			client.Pause()
			before := heapInUse()
			close(ready)
			synctest.Wait()
			// An item is encoded twice, and a frame may have a larger buffer than it needs.
			assert.Less(t, heapInUse()-before, 2*(queueBytes+4*sheetBytes))
			client.Resume()
			for received := 0; received < calls; {
				if strings.Contains(client.Next().Text, sheet.Text) {
					received++
				}
			}
		})
	}
}
