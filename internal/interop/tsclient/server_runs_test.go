package tsclient_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	runs "github.com/penstock-go/penstock/run" // run runs a program
)

type (
	// Token is an item of a run.
	Token struct {
		Text string `json:"text"`
	}
	// Start begins a run of numbers.
	Start struct {
		Topic   string `json:"topic"`
		Items   int    `json:"items"`
		EveryMs int    `json:"everyMs"`
		Wait    bool   `json:"wait"` // until it is stopped
	}
	Started struct {
		Run string `json:"run"`
	}
)

func (Token) MessageType() string   { return "token" }
func (Start) MessageType() string   { return "START" }
func (Started) MessageType() string { return "STARTED" }

// registerRuns adds runs, whose clients may do everything except with answer/secret.
func registerRuns(r *router.Router) {
	answers := runs.New(r, "answer/{id}", &runs.Options[Token]{
		ShutdownGrace: time.Millisecond,
		Merge:         func(first, second Token) (Token, bool) { return Token{first.Text + second.Text}, true },
		Authorize: func(_ *router.Context, _ runs.Action, topic runs.Topic) error {
			if topic.Value("id") == "secret" {
				return errors.Errorf(errors.PermissionDenied, "%s is secret", topic)
			}
			return nil
		},
	})
	router.RPC(r, func(ctx *router.Context, m Start) (Started, error) {
		info, err := answers.Start(ctx, m.Topic, nil, func(ctx context.Context, out *runs.Output[Token]) error {
			for i := range m.Items {
				if err := out.Emit(Token{fmt.Sprint(i, " ")}); err != nil {
					return err
				}
				time.Sleep(time.Duration(m.EveryMs) * time.Millisecond)
			}
			if m.Wait {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		})
		return Started{info.ID}, err
	})
}
