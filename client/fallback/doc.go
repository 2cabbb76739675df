// Package fallback connects a Go client over plain HTTP where a proxy, a firewall or an antivirus
// program blocks WebSocket. [New] returns an [http.RoundTripper] for client.Options.HTTPClient: it
// sends WebSocket handshakes as they are, and answers them itself, with a connection over plain
// HTTP, once WebSocket has turned out to be blocked. The client does not see a difference.
//
//	c := client.New("wss://example.com/ws", &client.Options{
//		HTTPClient: &http.Client{Transport: fallback.New("https://example.com/ws/http", nil)},
//		Resume:     true,
//	})
//
// The server's side is router.Router.HTTPFallback; docs/protocol.md, section 15, specifies the
// requests.
//
// # When it falls back
//
// An attempt to connect by WebSocket has failed if it ends or takes 5 s without a message of the
// server, or if the connection is lost within 5 s without a close frame. It has not if the server
// has refused it: with an error as response, or with the close code 1012, 1013 or one from 4000 on,
// which no proxy sends. After a failure, a GET request for the URL decides: if it does not get the
// server's answer within 2 s, this is an outage or a deploy, and the failures before do not count
// any more. If it does, the client falls back after three failures in a row. If no message
// has arrived by WebSocket before, two are enough, and one that has taken 5 s; but not if the
// response is 429, 502, 503 or 504. The client then uses HTTP for ten minutes without trying
// WebSocket. The RoundTripper remembers that as long as the program runs.
//
// While a connection is open over HTTP, a WebSocket that carries no messages of the client tries
// after a minute, and then less often, up to every 30 minutes, whether WebSocket works again. If it
// lasts for the three seconds that the server tests it for, the client opens a second connection,
// by WebSocket, resumes its session if client.Options.Resume is set, and closes the first one when
// its calls have been answered. Streams that take longer than a few seconds end with
// client.ErrOutcomeUnknown.
//
// In contrast to the TypeScript client, which has these rules too, a program has no page that is
// hidden or shown and no event that says that its network has changed.
//
// # Limits
//
// Messages over HTTP are JSON. A client with client.Options.Codec keeps trying WebSocket, and the
// errors say why. One RoundTripper is for one server; several clients of it may share one. Requests
// that are no WebSocket handshakes are passed on. All requests have the headers of the handshake.
package fallback
