package main

import (
	"net/http"

	"github.com/olahol/melody"
)

func serveMelody() (http.Handler, func(int)) {
	m := melody.New()
	m.HandleMessage(func(s *melody.Session, data []byte) {
		reply, err := answerTyped(data)
		if err == nil {
			err = s.Write(reply)
		}
		if err != nil {
			_ = s.Close()
		}
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = m.HandleRequest(w, r) })
	return handler, func(n int) {
		for range n {
			check(m.Broadcast(published))
		}
	}
}
