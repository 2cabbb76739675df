// Package wskit tests the router with JavaScript programs: a client that validates everything with
// the published schemas of ws-kit, and a plain WebSocket.
package wskit
