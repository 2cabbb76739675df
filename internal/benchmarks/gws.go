package main

import (
	"net/http"
	"sync"

	"github.com/lxzan/gws"
)

type gwsHandler struct {
	gws.BuiltinEventHandler
	conns sync.Map
}

func (h *gwsHandler) OnOpen(c *gws.Conn)           { h.conns.Store(c, nil) }
func (h *gwsHandler) OnClose(c *gws.Conn, _ error) { h.conns.Delete(c) }

func (h *gwsHandler) OnMessage(c *gws.Conn, message *gws.Message) {
	defer func() { _ = message.Close() }()
	reply, err := answerTyped(message.Bytes())
	if err == nil {
		err = c.WriteMessage(gws.OpcodeText, reply)
	}
	if err != nil {
		_ = c.WriteClose(1011, nil)
	}
}

func serveGWS() (http.Handler, func(int)) {
	h := &gwsHandler{}
	upgrader := gws.NewUpgrader(h, &gws.ServerOption{
		PermessageDeflate: gws.PermessageDeflate{Enabled: compresses(), Threshold: deflateMinBytes},
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r)
		if err != nil {
			return
		}
		go c.ReadLoop()
	})
	return handler, func(n int) {
		for range n {
			b := gws.NewBroadcaster(gws.OpcodeText, nextPublication())
			for c := range h.conns.Range {
				check(b.Broadcast(c.(*gws.Conn)))
			}
			check(b.Close())
		}
	}
}
