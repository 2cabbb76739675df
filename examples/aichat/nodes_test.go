package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestNodes_ShareAnswers moves a user between two nodes that share a Redis server.
func TestNodes_ShareAnswers(t *testing.T) {
	flag := "-redis=redis://" + redistest.Start(t).Addr
	one, two := newTestServer(t, flag), newTestServer(t, flag)
	urls := []string{serveTest(t, one), serveTest(t, two)}
	first := dial(t, urls[0], "ann", http.DefaultClient)
	n := testscale.Pick(50, 1000)

	first.send("1", "chat", "m1", `{"items":4000,"everyMs":5,"text":"w"}`)
	start := first.firstChunk()
	tab := dial(t, urls[1], "ann", http.DefaultClient)
	tab.send("2", "chat", "m2", short)
	assert.Equal(t, "error", tab.read("2").end.Type, "an answer is being written on the other node")
	bob := dial(t, urls[1], "bob", http.DefaultClient)
	bob.resume("1", "chat")
	assert.Equal(t, "no-active", bob.read("1").end.Type)

	tab.resume("3", "chat")
	assert.Equal(t, start.Chunk, tab.firstChunk().Chunk)
	stopped := time.Now()
	tab.abort("3")
	texts := []string{first.read("1").text, ""}
	took := time.Since(stopped)
	a := tab.read("3")
	texts[1] = a.text
	assert.Equal(t, "end", a.end.Type)
	assert.Equal(t, texts[0], texts[1])
	assert.Less(t, took, 10*time.Second, "the rest of the answer would take 20 s")

	tab.send("4", "chat", "m3", fmt.Sprintf(`{"items":%d,"everyMs":0,"text":"w"}`, n))
	assert.Equal(t, items("w", n), tab.read("4").text)
	first.resume("4", "chat")
	assert.Equal(t, items("w", n), first.read("4").text, "an answer that has ended")

	opened := routertest.Call[ChatOpened](routertest.Dial(t, one.router, routertest.Token("ann")), OpenChat{"chat"})
	assert.Equal(t, []string{"m1", start.Chunk.MessageID, "m3"}, []string{opened.Messages[0].ID, opened.Messages[1].ID, opened.Messages[2].ID})
	assert.Len(t, opened.Messages, 4)
}

// TestNodes_ShareBudget asks on one node and looks at the budget on the other.
func TestNodes_ShareBudget(t *testing.T) {
	flag := "-redis=redis://" + redistest.Start(t).Addr
	one, two := newTestServer(t, flag), newTestServer(t, flag)
	ann := routertest.Dial(t, one.router, routertest.Token("ann"))
	asked := routertest.Call[Asked](ann, Ask{"chat", "1", "hello"})
	other := left(routertest.Dial(t, two.router, routertest.Token("ann")))
	assert.Less(t, other["tokens per day"].Left, other["tokens per day"].Max)
	assert.Equal(t, "stopped", routertest.Call[ended](ann, stop{Topic: "answer/ann/chat", Run: asked.Run}).State)
}

func serveTest(t *testing.T, s *server) (url string) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}
