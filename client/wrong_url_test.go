//go:build !js

package client_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

func TestClient_WrongURLClosesIt(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"htp://x", "//x", "ws:", "ws://x:port/?access_token=secret", ""} {
		c := client.New(url, &client.Options{Logger: slog.New(slog.DiscardHandler)})
		err := c.Connect(testContext(t))
		require.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), url)
		assert.NotContains(t, err.Error(), "secret")
		assert.Equal(t, err, c.Err())
		assert.Equal(t, err, client.Send(testContext(t), c, say{}))
		<-c.Done()
	}
}
