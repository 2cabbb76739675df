// Package client is the Go client of a Penstock server.
//
// A [Client] keeps one WebSocket connection open. It connects again after every interruption, with
// backoff, and then sends what has waited, resumes its session, and recovers what it has missed on
// the topics to which it is subscribed. The server's side of everything here is package router; the
// messages between them are specified in docs/protocol.md. The package is not available for GOOS=js: pages
// use the TypeScript client.
//
//	c := client.New("wss://example.com/ws", &client.Options{Token: token})
//	defer c.Close(ctx)
//	joined, err := client.Call[RoomJoined](ctx, c, JoinRoom{Room: "go"})
package client
