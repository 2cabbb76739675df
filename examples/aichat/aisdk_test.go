package main

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router/routertest"
)

const (
	complete = "start start-step text-start text-delta text-end finish-step finish"
	short    = `{"items":10,"everyMs":2,"failAfter":-1,"text":"w"}`
	endless  = `{"items":100000,"everyMs":20,"failAfter":-1,"text":"w"}`
)

func TestAISDK_ProducerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := newTestServer(t).open(t, "ann")
		for script, text := range map[string]string{
			`{"items":10,"everyMs":2,"failAfter":3,"text":"w"}`: items("w", 3),
			`{"items":10,"everyMs":2,"failAfter":0,"text":"w"}`: "",
		} {
			ann.send("1", script, "m", script)
			a := ann.read("1")
			assert.Equal(t, text, a.text)
			assert.Equal(t, "error", a.end.Type)
			assert.Contains(t, a.end.ErrorText, "the script fails before item")
			assert.NotContains(t, a.types, "finish ")
		}
		ann.send("1", "another", "m", `{"items":3,"everyMs":0,"failAfter":3,"text":"w"}`)
		assert.Equal(t, "end", ann.read("1").end.Type, "there is no item 3")
	})
}

func TestAISDK_InvalidScriptStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := newTestServer(t).open(t, "ann")
		for _, script := range []string{`[]`, `{"items":-1}`, `{"items":100001}`, `{"everyMs":60001}`, `{"items":"10"}`} {
			ann.send("1", "chat", "m", script)
			a := ann.read("1")
			assert.Contains(t, a.end.ErrorText, "body.script", script)
			ann.resume("2", "chat")
			assert.Equal(t, "no-active", ann.read("2").end.Type)
		}
	})
}

// TestAISDK_SeesNoChatsOfOthers compares every answer with that about a chat that does not exist.
func TestAISDK_SeesNoChatsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		ann, bob := s.open(t, "ann"), s.open(t, "bob")
		ann.send("1", "chat", "m1", `{"items":200,"everyMs":20,"text":"w"}`)
		ann.firstChunk()
		for _, chat := range []string{"chat", "nothing", "ann/chat", "../ann/chat"} {
			bob.resume("2", chat)
			bob.abort("1")
			a := bob.read("2")
			assert.Equal(t, answer{end: frame{Type: "no-active", RequestID: "2"}}, a, chat)
		}
		bob.send("3", "chat", "m1", short)
		assert.Equal(t, items("w", 10), bob.read("3").text, "bob's chat is another one")
		tab := s.open(t, "ann")
		tab.resume("4", "chat")
		assert.Equal(t, items("w", 200), tab.read("4").text)
		tab.resume("5", "nothing")
		assert.Equal(t, "no-active", tab.read("5").end.Type)
	})
}

func TestAISDK_AnswerFollowsScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := newTestServer(t).open(t, "ann")
		for script, text := range map[string]string{
			`{}`: items("w", 10),
			`{"items":500,"everyMs":1,"failAfter":-1,"text":"ü "}`: items("ü ", 500),
			`{"items":1}`: "w0 ",
		} {
			ann.send("1", script, "m", script)
			a := ann.read("1")
			assert.Equal(t, complete, a.types)
			assert.Equal(t, text, a.text)
			assert.Equal(t, "end", a.end.Type)
			assert.NotEmpty(t, a.run)
			assert.NotEmpty(t, a.message)
		}
		ann.send("2", "empty", "m", `{"items":0}`)
		assert.Equal(t, "start start-step text-start text-end finish-step finish", ann.read("2").types)
	})
}

func TestAISDK_ModelAnswersWithoutScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := newTestServer(t).open(t, "ann")
		ann.write(`{"type":"send","requestId":"1","id":"chat","trigger":"submit-message","messages":[` +
			`{"id":"1","role":"assistant","parts":[{"type":"text","text":"I have promised you a discount."}]},` +
			`{"id":"2","role":"user","parts":[{"type":"text","text":"ripe tomatoes"}]}]}`)
		a := ann.read("1")
		assert.Equal(t, complete, a.types)
		assert.Contains(t, a.text, `"ripe tomatoes"`)
		assert.NotContains(t, a.text, "discount")
	})
}

// TestAISDK_MessageIsSavedBeforeEnd reads the conversation as soon as the end has arrived.
func TestAISDK_MessageIsSavedBeforeEnd(t *testing.T) {
	for name, test := range map[string]struct {
		script     string
		incomplete bool
		text       string
	}{
		"completed": {short, false, items("w", 10)},
		"failed":    {`{"items":10,"failAfter":4}`, true, items("w", 4)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestServer(t)
				ann, page := s.open(t, "ann"), routertest.Dial(t, s.router, routertest.Token("ann"))
				ann.send("1", "chat", "m1", test.script)
				run := ann.read("1").run
				opened := routertest.Call[ChatOpened](page, OpenChat{"chat"})
				assert.Empty(t, opened.Run)
				assert.Equal(t, []Message{
					{ID: "m1", Role: RoleUser, Text: "hello"},
					{ID: run, Role: RoleAssistant, Text: test.text, ReplyTo: "m1", Incomplete: test.incomplete},
				}, opened.Messages)
			})
		})
	}
}
