package protobuf_test

import (
	"fmt"
	"log"

	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/internal/chatpb"
	"github.com/penstock-go/penstock/router"
)

// Generated messages are registered as pointers. Package chatpb, which protoc has generated, contains
// further the methods MessageType of Say and Said.
func Example() {
	r := router.New(&router.Options{Codecs: []router.Codec{protobuf.Codec{}}})
	router.RPC(r, func(_ *router.Context, m *chatpb.Say) (*chatpb.Said, error) {
		return &chatpb.Said{Text: m.GetText()}, nil
	})

	payload, err := protobuf.Codec{}.Marshal(&chatpb.Say{Room: "go", Text: "hi"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("% x\n", payload)
	// Output: 0a 02 67 6f 12 02 68 69
}
