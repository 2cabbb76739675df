package main

import (
	"context"
	"net/http"

	"github.com/centrifugal/centrifuge"
)

func serveCentrifuge() (http.Handler, func(int)) {
	node, err := centrifuge.New(centrifuge.Config{})
	check(err)
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{
			Credentials:   &centrifuge.Credentials{UserID: "ann"},
			Subscriptions: map[string]centrifuge.SubscribeOptions{"all": {}},
		}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnRPC(func(e centrifuge.RPCEvent, reply centrifuge.RPCCallback) {
			reply(centrifuge.RPCReply{Data: e.Data}, nil)
		})
	})
	check(node.Run())
	return centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{}), func(n int) {
		for range n {
			_, err := node.Publish("all", published)
			check(err)
		}
	}
}
