package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

// serveCoder is the usual loop in the HTTP handler, with the library's own Read and Write.
func serveCoder() (http.Handler, func(int)) {
	var conns sync.Map
	opts := &websocket.AcceptOptions{}
	if compresses() {
		opts.CompressionMode, opts.CompressionThreshold = websocket.CompressionNoContextTakeover, deflateMinBytes
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, opts)
		if err != nil {
			return
		}
		defer c.CloseNow()
		conns.Store(c, nil)
		defer conns.Delete(c)
		ctx := context.Background()
		for {
			_, data, err := c.Read(ctx)
			if err != nil {
				return
			}
			reply, err := answerTyped(data)
			if err != nil {
				return
			}
			if c.Write(ctx, websocket.MessageText, reply) != nil {
				return
			}
		}
	})
	return handler, func(n int) {
		for range n {
			message := nextPublication()
			for c := range conns.Range {
				check(c.(*websocket.Conn).Write(context.Background(), websocket.MessageText, message))
			}
		}
	}
}
