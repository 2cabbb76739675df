package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// Receive runs all stages of the pipeline for a text message on the calling goroutine, as if the client
// had sent it. At most one goroutine may call it for a connection, whose serve must have blocked.
func Receive(c *Conn, text []byte) {
	msg := wsconn.Message{Buffer: netpoll.NewBuffer(netpoll.ClassFor(len(text))), Size: int64(len(text)), At: time.Now()}
	msg.Bytes = append(msg.Bytes, text...)
	c.inline = true
	if in := (&reader{Conn: c}).receive(msg); in != nil {
		c.messages.RunClaimed(in)
	} else if c.messages.TryStart() {
		c.messages.Run()
	}
}
