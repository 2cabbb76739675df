package router_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// ExportRows is a stream of the rows of a table.
type ExportRows struct {
	Table string `json:"table"`
}

func (ExportRows) MessageType() string { return "EXPORT_ROWS" }

// A Row is an item of ExportRows. It needs no message type.
type Row struct {
	ID int `json:"id"`
}

// RowsExported is the reply of ExportRows, after all rows.
type RowsExported struct {
	Rows int `json:"rows"`
}

func (RowsExported) MessageType() string { return "ROWS_EXPORTED" }

// exportRows sends the rows as the client reads them. A program passes ctx to its database: the
// query then ends when the client aborts the stream.
func exportRows(ctx *router.Context, m ExportRows) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if m.Table == "" {
			yield(Row{}, errors.Errorf(errors.NotFound, "there is no such table"))
			return
		}
		for id := 1; id <= 3; id++ {
			if !yield(Row{ID: id}, nil) {
				return // the stream has been aborted, or the connection is closed
			}
		}
		ctx.SetReply(RowsExported{Rows: 3})
	}
}

// A stream sends its items while the client reads them, and then a reply or an error.
func ExampleStream() {
	r := router.New(nil)
	router.Stream(r, exportRows)
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	export := ExportRows{Table: "users"}
	if err := wsjson.Write(ctx, ws, map[string]any{
		"type":    export.MessageType(),
		"meta":    map[string]any{"correlationId": "1"},
		"payload": export,
	}); err != nil {
		log.Fatal(err)
	}
	for range 4 {
		var message struct {
			Type    string         `json:"type"`
			Payload map[string]any `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &message); err != nil {
			log.Fatal(err)
		}
		fmt.Println(message.Type, message.Payload)
	}
	// Output:
	// $ws:rpc-progress map[id:1]
	// $ws:rpc-progress map[id:2]
	// $ws:rpc-progress map[id:3]
	// ROWS_EXPORTED map[rows:3]
}

// ProgressWait sends any number of updates to a slow client. With Progress, the updates that do not
// fit into the client's send queue would close the connection.
func ExampleContext_ProgressWait() {
	r := router.New(&router.Options{Limits: router.Limits{QueueMessages: 8}})
	router.RPC(r, func(ctx *router.Context, m ResizeImages) (ImagesResized, error) {
		for done := range m.Images {
			if err := ctx.ProgressWait(ResizeProgress{Done: done + 1, Total: m.Images}); err != nil {
				return ImagesResized{}, err // the client has aborted the call, for example
			}
		}
		return ImagesResized(m), nil
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	resize := ResizeImages{Images: 1000}
	if err := wsjson.Write(ctx, ws, map[string]any{
		"type":    resize.MessageType(),
		"meta":    map[string]any{"correlationId": "1"},
		"payload": resize,
	}); err != nil {
		log.Fatal(err)
	}
	for updates := 0; ; updates++ {
		var message struct {
			Type string `json:"type"`
		}
		if err := wsjson.Read(ctx, ws, &message); err != nil {
			log.Fatal(err)
		}
		if message.Type == "IMAGES_RESIZED" {
			fmt.Println(updates, "updates, then", message.Type)
			break
		}
	}
	// Output: 1000 updates, then IMAGES_RESIZED
}
