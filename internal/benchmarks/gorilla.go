package main

import (
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
)

func serveGorilla() (http.Handler, func(int)) {
	var conns sync.Map
	upgrader := websocket.Upgrader{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		conns.Store(c, nil)
		defer conns.Delete(c)
		for {
			_, data, err := c.ReadMessage()
			if err != nil {
				return
			}
			reply, err := answerTyped(data)
			if err != nil {
				return
			}
			if c.WriteMessage(websocket.TextMessage, reply) != nil {
				return
			}
		}
	})
	return handler, func(n int) {
		for range n {
			message, err := websocket.NewPreparedMessage(websocket.TextMessage, published)
			check(err)
			for c := range conns.Range {
				check(c.(*websocket.Conn).WritePreparedMessage(message))
			}
		}
	}
}
