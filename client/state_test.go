//go:build !js

package client_test

type moved struct {
	Player string `json:"player"`
	X      int    `json:"x"`
}

func (moved) MessageType() string { return "MOVED" }

func (m moved) ConflationKey() string { return m.Player }
