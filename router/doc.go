// Package router dispatches WebSocket messages to handlers by message type.
package router
