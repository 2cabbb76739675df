package aisdk_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/aisdk"
)

// TestSend_Items sends the chunks of short and long answers, on a connection with several requests.
func TestSend_Items(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{})[0].open(t, "ann")
		for _, items := range []int{0, 1, 500} {
			chat := fmt.Sprint("ann-", items)
			p.write(submit(chat, chat, "m", script{Items: items, EveryMs: 2, FailAfter: -1, Text: "w"}))
			a := p.read(chat)
			assert.Equal(t, "end", a.end.Type)
			assert.Equal(t, text(items), a.text)
			assert.Equal(t, []string{"start", "start-step", "text-start"}, a.types[:3])
			assert.Equal(t, []string{"text-end", "finish-step", "finish"}, a.types[len(a.types)-3:])
			run := a.chunks[0]["messageMetadata"].(map[string]any)["run"]
			assert.Equal(t, run, a.chunks[0]["messageId"])
		}
	})
}

func TestSend_FailedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{})[0].open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{Items: 3, EveryMs: 1, FailAfter: 2, Text: "w"}))
		a := p.read("1")
		assert.Equal(t, text(2), a.text)
		assert.Equal(t, []string{"text-end", "finish-step"}, a.types[len(a.types)-2:])
		assert.Equal(t, "error", a.end.Type)
		assert.Equal(t, "the model has failed", a.end.ErrorText)
	})
}

// TestResume_AnyTimeOnAnyNode receives the same chunks, merged, with the same ID of the message.
func TestResume_AnyTimeOnAnyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 2, aisdk.Options{})
		starter := all[0].open(t, "ann")
		starter.write(submit("1", "ann-1", "m", script{Items: 100, EveryMs: 10, FailAfter: -1, Text: "w"}))
		assert.Equal(t, "start", starter.next().Type)
		done := make(chan answer)
		const tabs = 20
		for i := range tabs {
			p := all[i%2].open(t, "ann")
			go func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond) // half of them after the end
				p.write(resume("r", "ann-1"))
				done <- p.read("r")
			}()
		}
		first := starter.rest("1")
		for range tabs {
			a := <-done
			assert.Equal(t, text(100), a.text)
			assert.Equal(t, "end", a.end.Type)
			assert.Equal(t, first.chunks[0], a.chunks[0])
		}
	})
}
