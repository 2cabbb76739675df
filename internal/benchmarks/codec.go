package main

import "net/http"

//go:generate go run -C ../../codec/jsoncode ./cmd/jsoncode -dir ../../internal/benchmarks -o codec_json.go CodecSay CodecSaid

// CodecSay is Say with the methods of codec_json.go, which bypass the JSON library.
type CodecSay struct {
	Room string `json:"room"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (CodecSay) MessageType() string { return "SAY" }

// Validate does what Say.Validate does.
func (m CodecSay) Validate() error { return Say(m).Validate() }

// CodecSaid is Said with the methods of codec_json.go.
type CodecSaid struct {
	Room string `json:"room"`
	User string `json:"user"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (CodecSaid) MessageType() string { return "SAID" }

func codecSaid(m CodecSay) CodecSaid { return CodecSaid(said(Say(m))) }

// serveGenerated is servePenstock with messages that have methods of their own for JSON.
func serveGenerated() (http.Handler, func(int)) {
	return servePenstockWith(codecSaid)
}
