package run_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/runs"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A Token is an item of an answer. Clients attach with "token.attach", and stop with "token.stop".
type Token struct {
	Text string `json:"text"`
}

func (Token) MessageType() string { return "token" }

// Ask starts an answer. The client repeats it with the same ID after a reconnect.
type Ask struct {
	ID       string `json:"id"`
	Chat     string `json:"chat"`
	Question string `json:"question"`
}

func (Ask) MessageType() string { return "ask" }

// Asked is the reply of Ask. The client then attaches to the run.
type Asked struct {
	Run string `json:"run"`
}

func (Asked) MessageType() string { return "asked" }

// mergeTokens returns one token with the text of two.
func mergeTokens(first, second Token) (Token, bool) { return Token{first.Text + second.Text}, true }

// mayUse permits the chats whose names begin with the user's ID.
func mayUse(ctx *router.Context, _ run.Action, topic run.Topic) error {
	if !strings.HasPrefix(topic.Value("chat"), ctx.Identity().UserID+"-") {
		return errors.Errorf(errors.PermissionDenied, "this is another user's chat")
	}
	return nil
}

// A handler starts an answer, which goes on when the client disconnects. The client attaches to it, on any
// node, as often as it likes.
func Example() {
	r := router.New(nil)
	answers := run.New(r, "answer/{chat}", &run.Options[Token]{Authorize: mayUse, Merge: mergeTokens})
	router.RPC(r, func(ctx *router.Context, m Ask) (Asked, error) {
		info, err := answers.Start(ctx, "answer/"+m.Chat, &run.StartOptions{RequestID: m.ID}, func(ctx context.Context, out *run.Output[Token]) error {
			for word := range strings.FieldsSeq("a run outlives its connection") { // a model's stream
				if err := out.Emit(Token{Text: word + " "}); err != nil {
					return err
				}
			}
			return nil
		})
		return Asked{Run: info.ID}, err
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx := context.Background()
	c := client.New("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	defer func() { _ = c.Close(ctx) }()
	asked, err := client.Call[Asked](ctx, c, Ask{ID: "1", Chat: "-42", Question: "What is a run?"})
	if err != nil {
		log.Fatal(err)
	}
	answer := runs.Attach(c, "answer/-42", &runs.Options[Token]{Run: asked.Run})
	text := ""
	for part, err := range answer.Parts(ctx) { // which survives reconnects
		if err != nil {
			log.Fatal(err)
		}
		text += part.Item.Text
	}
	fmt.Println(text)
	// Output: a run outlives its connection
}

// The server itself can attach to a run, for example to store what a model has answered.
func ExampleRuns_Attach() {
	r := router.New(nil)
	answers := run.New(r, "answer/{chat}", &run.Options[Token]{Merge: mergeTokens})
	ctx := context.Background()
	info, err := answers.Start(ctx, "answer/42", nil, func(_ context.Context, out *run.Output[Token]) error {
		return errors.Join(out.Emit(Token{"Hello, "}), out.Emit(Token{"world"}))
	})
	if err != nil {
		log.Fatal(err)
	}
	reader, err := answers.Attach(ctx, "answer/42", run.From{Run: info.ID})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	text := ""
	for part, err := range reader.Parts(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		text += part.Item.Text
	}
	fmt.Println(text)
	fmt.Println(reader.Info().State, reader.Info().Items)
	// Output:
	// Hello, world
	// completed 2
}

// A run that is stopped ends for all readers, on all nodes.
func ExampleRuns_Stop() {
	r := router.New(nil)
	jobs := run.New[Token](r, "job/{id}", nil)
	ctx := context.Background()
	info, err := jobs.Start(ctx, "job/7", nil, func(ctx context.Context, _ *run.Output[Token]) error {
		<-ctx.Done() // work that ends when it is canceled
		return context.Cause(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	ended, err := jobs.Stop(ctx, "job/7", info.ID, "ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ended.State, "by", ended.StoppedBy)
	// Output: stopped by ann
}
