package exampleserver

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	runs "github.com/penstock-go/penstock/run" // run runs a program
)

type (
	// token is an item of a run.
	token struct {
		Text string `json:"text"`
	}
	// start begins a run of numbers.
	start struct {
		Topic   string `json:"topic"`
		Items   int    `json:"items"`
		EveryMs int    `json:"everyMs"`
		Wait    bool   `json:"wait"` // until it is stopped
	}
	started struct {
		Run string `json:"run"`
	}
)

func (token) MessageType() string   { return "token" }
func (start) MessageType() string   { return "START" }
func (started) MessageType() string { return "STARTED" }

// registerRuns adds runs, whose clients may do everything except with answer/secret.
func registerRuns(r *router.Router) {
	answers := runs.New(r, "answer/{id}", &runs.Options[token]{
		ShutdownGrace: time.Millisecond,
		Merge:         func(first, second token) (token, bool) { return token{first.Text + second.Text}, true },
		Authorize: func(_ *router.Context, _ runs.Action, topic runs.Topic) error {
			if topic.Value("id") == "secret" {
				return errors.Errorf(errors.PermissionDenied, "%s is secret", topic)
			}
			return nil
		},
	})
	router.RPC(r, func(ctx *router.Context, m start) (started, error) {
		info, err := answers.Start(ctx, m.Topic, nil, func(ctx context.Context, out *runs.Output[token]) error {
			for i := range m.Items {
				if err := out.Emit(token{fmt.Sprint(i, " ")}); err != nil {
					return err
				}
				time.Sleep(time.Duration(m.EveryMs) * time.Millisecond)
			}
			if m.Wait {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		})
		return started{info.ID}, err
	})
}
