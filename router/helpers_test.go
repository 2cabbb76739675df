package router_test

import (
	"encoding/json"
	"io"

	"github.com/penstock-go/penstock/errors"
)

func payloadOf(frame []byte) string {
	var envelope struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(frame, &envelope); err != nil {
		return err.Error()
	}
	return string(envelope.Payload)
}

// discard reads r to its end without keeping anything.
func discard(r io.Reader) error {
	var buf [1024]byte
	for {
		if _, err := r.Read(buf[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}
