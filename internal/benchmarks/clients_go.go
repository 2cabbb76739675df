package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/centrifugal/centrifuge"
	centrifugego "github.com/centrifugal/centrifuge-go"

	penstockclient "github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

const inGo = "Go"

var goClients = []clientPeer{
	{"penstock", inGo, func() contender { return variant("client penstock") }, startPenstockClient},
	{"centrifuge-go", inGo, func() contender { return variant("client centrifuge") }, func(addr string) receiver {
		return startCentrifugeClient(centrifugego.NewJsonClient("ws://"+addr+"/connection/websocket", centrifugego.Config{}))
	}},
	{"centrifuge-go, protobuf", inGo, func() contender { return variant("client centrifuge") }, func(addr string) receiver {
		return startCentrifugeClient(centrifugego.NewProtobufClient("ws://"+addr+"/connection/websocket?format=protobuf", centrifugego.Config{}))
	}},
}

// clientVariants are the servers of the clients suite. All their connections receive what is published.
var clientVariants = []contender{
	{name: "client penstock", serve: func() (http.Handler, func(int)) {
		handler, _ := serveOptions(&router.Options{OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("all") }})
		return handler, publishPaced(func() error { return handler.(*router.Router).Publish("all", queuedMessage) })
	}},
	{name: "client centrifuge", serve: func() (http.Handler, func(int)) {
		node, err := centrifuge.New(centrifuge.Config{})
		check(err)
		payload, err := json.Marshal(queuedMessage)
		check(err)
		return serveCentrifugeNode(node, centrifuge.WebsocketConfig{}), publishPaced(func() error {
			_, err := node.Publish("all", payload)
			return err
		})
	}},
}

// A goReceiver counts messages in this process.
type goReceiver struct {
	awaited atomic.Int64
	done    chan struct{}
	closes  func()
}

func newGoReceiver() *goReceiver { return &goReceiver{done: make(chan struct{}, 1)} }

func (r *goReceiver) received(m Said) {
	if m.Text != queuedMessage.Text {
		panic("received " + m.Text)
	}
	if r.awaited.Add(-1) == 0 {
		r.done <- struct{}{}
	}
}

func (r *goReceiver) expect(n int) { r.awaited.Store(int64(n)) }
func (r *goReceiver) await()       { <-r.done }
func (r *goReceiver) usage() Stats { return ownStats() }
func (r *goReceiver) close()       { r.closes() }

func startPenstockClient(addr string) receiver {
	r := newGoReceiver()
	c := penstockclient.New("ws://"+addr+"/ws", nil)
	penstockclient.On(c, func(m Said, _ *penstockclient.Received) { r.received(m) })
	r.closes = func() { check(c.Close(context.Background())) }
	check(c.Connect(context.Background()))
	return r
}

func startCentrifugeClient(c *centrifugego.Client) receiver {
	r := newGoReceiver()
	connected := make(chan struct{})
	c.OnSubscribed(func(centrifugego.ServerSubscribedEvent) { close(connected) })
	c.OnPublication(func(e centrifugego.ServerPublicationEvent) {
		var m Said
		check(json.Unmarshal(e.Data, &m))
		r.received(m)
	})
	r.closes = c.Close
	check(c.Connect())
	<-connected
	return r
}
