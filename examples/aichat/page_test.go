package main

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)

func TestPage_SeesNoChatsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		ann, bob := routertest.Dial(t, s.router, routertest.Token("ann")), routertest.Dial(t, s.router, routertest.Token("bob"))
		asked := routertest.Call[Asked](ann, Ask{"chat", "1", "hello"})
		assert.Equal(t, ChatOpened{Messages: []Message{}}, routertest.Call[ChatOpened](bob, OpenChat{"chat"}))
		for _, topic := range []string{"answer/ann/chat", "answer/ann/nothing", "answer/bob/chat"} {
			assert.Equal(t, errors.NotFound, routertest.ReceiveAnswerError(routertest.Start(bob, attach{Topic: topic})).Code, topic)
			assert.Equal(t, errors.NotFound, routertest.CallError(bob, stop{Topic: topic, Run: asked.Run}).Code, topic)
		}
		assert.Equal(t, errors.NotFound, routertest.SubscribeError(bob, "answer/ann/chat").Code)
		assert.Equal(t, errors.PermissionDenied, routertest.SubscribeError(bob, "messages/ann/chat").Code)
		_, end := read(ann, run.From{})
		assert.Equal(t, "completed", end.State)
	})
}

func TestPage_InvalidQuestionsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := routertest.Dial(t, newTestServer(t).router, routertest.Token("ann"))
		for _, m := range []Ask{{"", "1", "hello"}, {"chat", "", "hello"}, {"chat", "1", ""}, {"chat", "1", string(make([]rune, maxQuestion+1))}} {
			assert.Equal(t, errors.InvalidArgument, routertest.CallError(page, m).Code)
		}
		routertest.Call[Asked](page, Ask{"chat", "1", "hello"})
		assert.Equal(t, errors.Aborted, routertest.CallError(page, Ask{"chat", "2", "hello"}).Code, "one question at a time")
	})
}

// TestPage_ContinuesByItemNumber attaches to an answer in the middle.
func TestPage_ContinuesByItemNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		page := routertest.Dial(t, s.router, routertest.Token("ann"))
		asked := routertest.Call[Asked](page, Ask{"chat", "1", "hello"})
		assert.Equal(t, asked, routertest.Call[Asked](page, Ask{"chat", "1", "hello"}), "the same question has one answer")
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, asked.Run, routertest.Call[ChatOpened](page, OpenChat{"chat"}).Run, "a page that is reloaded learns of the run")
		whole, end := read(page, run.From{Run: asked.Run})
		assert.Equal(t, "completed", end.State)
		const first = 3 + 4 // start, start-step and text-start precede the words
		rest, _ := read(page, run.From{Run: asked.Run, Item: first})
		assert.Equal(t, whole, "You have asked: \"hello\". "+rest)
		assert.Equal(t, ChatOpened{Messages: []Message{
			{ID: "1", Role: RoleUser, Text: "hello"},
			{ID: asked.Run, Role: RoleAssistant, Text: whole, ReplyTo: "1"},
		}}, routertest.Call[ChatOpened](page, OpenChat{"chat"}))
	})
}

func TestPage_StopEndsAnswerInAllTabs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		page, tab := routertest.Dial(t, s.router, routertest.Token("ann")), routertest.Dial(t, s.router, routertest.Token("ann"))
		routertest.Subscribe(tab, "messages/ann/chat")
		asked := routertest.Call[Asked](page, Ask{"chat", "1", "hello"})
		assert.Equal(t, Message{ID: "1", Role: RoleUser, Text: "hello"}, routertest.Receive[Message](tab))
		time.Sleep(time.Second)
		began := time.Now()
		assert.Equal(t, "stopped", routertest.Call[ended](page, stop{Topic: "answer/ann/chat", Run: asked.Run}).State)
		saved := routertest.Receive[Message](tab)
		text, end := read(tab, run.From{})
		assert.Less(t, time.Since(began), 1500*time.Millisecond)
		assert.Equal(t, "stopped", end.State)
		assert.NotEmpty(t, text)
		assert.Equal(t, Message{ID: asked.Run, Role: RoleAssistant, Text: text, ReplyTo: "1", Incomplete: true}, saved)
	})
}

func TestConversation_Add(t *testing.T) {
	question := func(id string) Message { return Message{ID: id, Role: RoleUser} }
	answer := func(id, replyTo string) Message { return Message{ID: id, Role: RoleAssistant, ReplyTo: replyTo} }
	q1, a1, q2 := question("q1"), answer("a1", "q1"), question("q2")
	for name, test := range map[string]struct{ add, want []Message }{
		"an answer without a question":           {[]Message{a1}, nil},
		"an answer to an earlier question":       {[]Message{q1, q2, a1}, []Message{q1, q2}},
		"a second answer":                        {[]Message{q1, a1, answer("a2", "q1")}, []Message{q1, a1}},
		"a question that is asked again":         {[]Message{q1, a1, q2, q1}, []Message{q1}},
		"the answer to one that was asked again": {[]Message{q1, a1, q1, answer("a2", "q1")}, []Message{q1, answer("a2", "q1")}},
		"a conversation":                         {[]Message{q1, a1, q2}, []Message{q1, a1, q2}},
	} {
		var got []Message
		for _, m := range test.add {
			got = add(got, m)
		}
		assert.Equal(t, test.want, got, name)
	}
}

var fileReference = regexp.MustCompile(`(?:href|src|from)="?([a-z][a-z.-]+)"|from "\./([a-z.-]+)"`)

// TestPage_FilesAreServed loads index.html, and every file to which a loaded file refers. What the
// page does is tested in Chromium, in internal/interop/aichatpage.
func TestPage_FilesAreServed(t *testing.T) {
	s := newTestServer(t)
	loaded := map[string]bool{}
	var load func(name string)
	load = func(name string) {
		if loaded[name] {
			return
		}
		loaded[name] = true
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+name, nil))
		require.Equal(t, http.StatusOK, w.Code, name)
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'self'", name)
		for _, reference := range fileReference.FindAllStringSubmatch(w.Body.String(), -1) {
			load(reference[1] + reference[2])
		}
	}
	load("")
	embedded, err := fs.Glob(files, "page/*")
	require.NoError(t, err)
	assert.Len(t, loaded, len(embedded), "a file to which no other refers")
}

// TestPage_HasClientOfChat compares the client with that of examples/chat, which another test
// compares with its sources.
func TestPage_HasClientOfChat(t *testing.T) {
	chat, err := os.ReadFile("../chat/page/penstock-client.js")
	require.NoError(t, err)
	committed, err := os.ReadFile("page/penstock-client.js")
	require.NoError(t, err)
	assert.True(t, string(chat) == string(committed), "the client has changed; copy it: cp examples/chat/page/penstock-client.js examples/aichat/page/")
}
