package router_test

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A Tick is sent so often that it decodes and encodes its own JSON.
type Tick struct {
	N int64 `json:"n"`
}

func (Tick) MessageType() string { return "TICK" }

var errOtherForm = errors.New("not in the form that AppendJSON writes")

// DecodeJSON decodes what AppendJSON writes. The library decodes everything else.
func (t *Tick) DecodeJSON(p []byte) (err error) {
	digits := bytes.TrimSuffix(bytes.TrimPrefix(p, []byte(`{"n":`)), []byte(`}`))
	if t.N, err = strconv.ParseInt(string(digits), 10, 64); err != nil {
		return err
	}
	if again, _ := t.AppendJSON(nil); !bytes.Equal(p, again) {
		return errOtherForm
	}
	return nil
}

// AppendJSON appends what the library would write.
func (t Tick) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, `{"n":`...)
	b = strconv.AppendInt(b, t.N, 10)
	return append(b, '}'), nil
}

func ExampleMessage_json() {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m Tick) (Tick, error) { return Tick{m.N + 1}, nil }) // uses both methods

	var t Tick
	fmt.Println(t.DecodeJSON([]byte(`{"n":7}`)), t)
	fmt.Println(t.DecodeJSON([]byte(`{"n":7,"m":8}`)) != nil)
	// Output:
	// <nil> {7}
	// true
}
