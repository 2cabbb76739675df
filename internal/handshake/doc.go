// Package handshake has what is known about the request of a WebSocket connection, apart from
// connections: which pages may connect, where a token is, which subprotocol is selected, and how a
// rejection is answered over HTTP. It has no state and calls no application code.
package handshake
