package durablestreams_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/durablestreams"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// TestRevoke_WhileReaderWaits ends the access of a user while a request waits for messages.
func TestRevoke_WhileReaderWaits(t *testing.T) {
	ends := map[string]func(r *router.Router) error{
		"revoke": func(r *router.Router) error { return r.Revoke(context.Background(), "", "ann", "{kind}/{name}") },
		"disconnect": func(r *router.Router) error {
			_, err := r.DisconnectUser("", "ann", router.StatusPermissionDenied, "banned")
			return err
		},
	}
	for _, live := range []string{"long-poll", "sse"} {
		for how, end := range ends {
			for of, path := range map[string]string{"run": "run/ann", "topic": "topic/ann"} {
				for access, granted := range map[string]bool{"denied": false, "granted again": true} {
					t.Run(live+", "+of+", "+how+", "+access, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { revokeWhileReaderWaits(t, path, live, end, granted) })
					})
				}
			}
		}
	}
}

func revokeWhileReaderWaits(t *testing.T, path, live string, end func(*router.Router) error, granted bool) {
	r := router.New(nil)
	defer func() { assert.NoError(t, r.Shutdown(context.WithoutCancel(t.Context()))) }()
	allowed := true
	authorize := func(*http.Request, string) error {
		if !allowed {
			return errors.Errorf(errors.PermissionDenied, "no more")
		}
		return nil
	}
	topic := func(req *http.Request) string { return req.URL.Path[1:] }
	runs := run.New(r, "run/{name}", &run.Options[token]{})
	router.Topic(r, "topic/{name}", &router.TopicOptions{History: router.History{Messages: 10}, Messages: []router.Message{token{}}})
	handlers := map[string]http.Handler{
		"run/ann":   durablestreams.Runs(r, runs, &durablestreams.Options[token]{Topic: topic, Authorize: authorize}),
		"topic/ann": durablestreams.Topics(r, &durablestreams.Options[router.StoredMessage]{Topic: topic, Authorize: authorize}),
	}
	emit := make(chan token)
	_, err := runs.Start(t.Context(), "run/ann", nil, func(_ context.Context, out *run.Output[token]) error { return out.Emit(<-emit) })
	require.NoError(t, err)

	recorder, served := httptest.NewRecorder(), make(chan struct{})
	go func() {
		handlers[path].ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+path+"?offset=-1&live="+live, nil))
		close(served)
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	allowed = granted
	require.NoError(t, end(r))
	emit <- token{"secret"}
	require.NoError(t, r.Publish("topic/ann", token{"secret"}))
	<-served
	if granted {
		assert.Contains(t, recorder.Body.String(), "secret")
		return
	}
	assert.NotContains(t, recorder.Body.String(), "secret")
	if live == "long-poll" {
		assert.Equal(t, http.StatusNotFound, recorder.Code)
	}
}
