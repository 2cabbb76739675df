package aisdk_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// The page uses `new WebSocketChatTransport({ url: "/chat", params: { user: "ann" } })` of npm
// package ai. Here, a client sends what that class sends: a message, and a resume, whose frames are
// printed.
func Example() {
	r := router.New(nil)
	runs := run.New(r, "answer/{user}/{chat}", &run.Options[aisdk.Chunk]{Merge: aisdk.MergeDeltas})
	handler := aisdk.New(r, runs, &aisdk.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			user := req.URL.Query().Get("user") // a real server checks a cookie or a token
			if user == "" {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "sign in first")
			}
			return router.Identity{UserID: user}, nil
		},
		Authorize: func(context.Context, aisdk.Access) error { return nil }, // the topic has the user
		Topic:     func(id router.Identity, chat string) string { return "answer/" + id.UserID + "/" + chat },
		Answer: func(_ context.Context, req *aisdk.Request, out *aisdk.Output) error {
			if err := out.Emit(aisdk.Start("message-1", nil)); err != nil {
				return err
			}
			for word := range strings.FieldsSeq("You said: " + req.Message.Text()) {
				if err := out.Text(word + " "); err != nil {
					return err
				}
			}
			return nil
		},
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	defer func() { _ = r.Shutdown(context.Background()) }()

	ws, _, err := websocket.Dial(context.Background(), server.URL+"?user=ann", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = ws.CloseNow() }()
	_ = request(ws, `{"type":"send","requestId":"1","id":"7","trigger":"submit-message","headers":{},"body":{},
		"messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"good morning"}]}]}`)
	for _, frame := range request(ws, `{"type":"resume","requestId":"2","id":"7","headers":{},"body":{}}`) {
		fmt.Println(frame)
	}
	// Output:
	// {"type":"start","requestId":"2"}
	// {"type":"chunk","requestId":"2","sequence":0,"chunk":{"type":"start","messageId":"message-1"}}
	// {"type":"chunk","requestId":"2","sequence":1,"chunk":{"type":"text-start","id":"text-1"}}
	// {"type":"chunk","requestId":"2","sequence":2,"chunk":{"type":"text-delta","id":"text-1","delta":"You said: good morning "}}
	// {"type":"chunk","requestId":"2","sequence":3,"chunk":{"type":"text-end","id":"text-1"}}
	// {"type":"chunk","requestId":"2","sequence":4,"chunk":{"type":"finish","finishReason":"stop"}}
	// {"type":"end","requestId":"2"}
}

// request sends a frame, and returns those of the answer.
func request(ws *websocket.Conn, frame string) (frames []string) {
	err := ws.Write(context.Background(), websocket.MessageText, []byte(frame))
	for err == nil && (len(frames) == 0 || !strings.HasPrefix(frames[len(frames)-1], `{"type":"end"`)) {
		var text []byte
		_, text, err = ws.Read(context.Background())
		frames = append(frames, string(text))
	}
	return frames
}
