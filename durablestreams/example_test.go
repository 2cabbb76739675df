package durablestreams_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/penstock-go/penstock/durablestreams"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// The answer of a model, as text that curl prints while it is written:
//
//	curl -N "http://localhost:8080/answers/42?offset=-1&live=sse"
func ExampleRuns() {
	r := router.New(nil)
	answers := run.New[token](r, "answer/{chat}", nil)
	mux := http.NewServeMux()
	mux.Handle("/answers/{chat}", durablestreams.Runs(r, answers, &durablestreams.Options[token]{
		Topic:       func(req *http.Request) string { return "answer/" + req.PathValue("chat") },
		Authorize:   func(*http.Request, string) error { return nil }, // decide by a cookie, for example
		ContentType: "text/plain; charset=utf-8",
		Encode:      func(item token) ([]byte, error) { return []byte(item.Text), nil },
	}))
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx := context.Background()
	_, err := answers.Start(ctx, "answer/42", nil, func(_ context.Context, out *run.Output[token]) error {
		return out.Emit(token{"Hello"})
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := http.Get(server.URL + "/answers/42?offset=-1&live=long-poll")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", text)
	// Output: Hello
}
