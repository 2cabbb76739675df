package cbor_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/router"
)

type GetReadings struct{}

func (GetReadings) MessageType() string { return "GET_READINGS" }

type Readings struct {
	Sensor    string    `json:"sensor"`
	From      time.Time `json:"from"`
	Celsius   []float64 `json:"celsius"`
	Signature []byte    `json:"signature"`
}

func (Readings) MessageType() string { return "READINGS" }

// A message has the same type in Go for clients with JSON and with CBOR.
func Example() {
	r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}})
	router.RPC(r, func(*router.Context, GetReadings) (Readings, error) {
		m := Readings{Sensor: "t-17", From: time.Unix(1_730_000_000, 0).UTC(), Signature: make([]byte, 64)}
		for i := range 24 {
			m.Celsius = append(m.Celsius, 20+float64(i%8)/4)
		}
		return m, nil
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, subprotocol := range []string{"", cbor.Subprotocol} {
		ws, _, err := websocket.Dial(ctx, server.URL, &websocket.DialOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			log.Fatal(err)
		}
		defer ws.CloseNow()
		request := []byte(`{"type":"GET_READINGS","meta":{"correlationId":"b7c1"}}`)
		if err := ws.Write(ctx, websocket.MessageText, request); err != nil { // text is JSON on every connection
			log.Fatal(err)
		}
		_, answer, err := ws.Read(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if subprotocol == "" {
			fmt.Printf("JSON: %d bytes\n", len(answer))
			continue
		}
		head, payload := answer[2:2+binary.BigEndian.Uint16(answer)], answer[2+binary.BigEndian.Uint16(answer):]
		var envelope struct{ Type string }
		if err := json.Unmarshal(head, &envelope); err != nil {
			log.Fatal(err)
		}
		var readings Readings
		if err := cbor.New(nil).Unmarshal(payload, &readings); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("CBOR: %d bytes\n", len(answer))
		fmt.Println(envelope.Type, readings.Sensor, len(readings.Celsius))
	}
	// Output:
	// JSON: 370 bytes
	// CBOR: 277 bytes
	// READINGS t-17 24
}
