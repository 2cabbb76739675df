//go:build unix

package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

const nodeEnv = "PENSTOCK_RUN_NODE"

// A nodeConfig is what a node process receives.
type nodeConfig struct {
	Redis redistest.Address
	Lease time.Duration // of the runs
}

// size returns full if PENSTOCK_TESTS is a duration, and otherwise small.
func size[T any](small, full T) T {
	return testscale.Tiers(small, small, full)
}

// A numbered is an item that has its number.
type numbered struct {
	N int `json:"n"`
}

func (numbered) MessageType() string { return "numbered" }

// TestProcessNode is the main function of a node process. It prints its address, and ends with its standard input.
func TestProcessNode(t *testing.T) {
	text := os.Getenv(nodeEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var config nodeConfig
	require.NoError(t, json.Unmarshal([]byte(text), &config))
	unlimited := router.Rate{PerSecond: router.Unlimited}
	r := router.New(&router.Options{
		Broker: redis.NewBroker(config.Redis.Client()),
		Limits: router.Limits{
			HandshakesPerIP: unlimited, MessagesPerConn: unlimited, MessagesPerIP: unlimited, ConnsPerIP: router.Unlimited,
		},
	})
	rs := run.New(r, "load/{n}", &run.Options[numbered]{
		Lease:     config.Lease,
		Authorize: func(*router.Context, run.Action, run.Topic) error { return nil },
	})
	mux := http.NewServeMux()
	mux.Handle("/ws", r)
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, req *http.Request) { startLoad(rs, w, req) })
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, req *http.Request) {
		info, err := rs.Stop(req.Context(), req.FormValue("topic"), req.FormValue("run"), "ann")
		answer(w, info, err)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	fmt.Println("listening", server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startLoad starts a run that emits numbers at an interval.
func startLoad(rs *run.Runs[numbered], w http.ResponseWriter, req *http.Request) {
	items, _ := strconv.Atoi(req.FormValue("items"))
	every, _ := time.ParseDuration(req.FormValue("every"))
	opts := &run.StartOptions{RequestID: req.FormValue("request")}
	info, err := rs.Start(req.Context(), req.FormValue("topic"), opts, func(ctx context.Context, out *run.Output[numbered]) error {
		began := time.Now()
		for n := range items {
			timer := time.NewTimer(time.Until(began.Add(time.Duration(n) * every)))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return context.Cause(ctx)
			}
			if err := out.Emit(numbered{n}); err != nil {
				return err
			}
		}
		return nil
	})
	answer(w, info, err)
}

// answer answers with the ID and the state of a run.
func answer(w http.ResponseWriter, info run.Info, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_, _ = fmt.Fprint(w, info.ID, " ", info.State)
}
