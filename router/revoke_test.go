package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// drain drops what a client has received.
func drain(c *sessionClient) {
	for c.Pending() > 0 {
		c.Next()
	}
}

func TestRevoke_ManyTopicsEndTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		old.Abort()
		synctest.Wait()
		for n := range 257 {
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", fmt.Sprint("plain/", n)))
		}
		assert.Equal(t, errors.NotFound, dialSession(t, r, "ann").resumeError(old.token))
	})
}

func TestRevoke_InvalidArguments(t *testing.T) {
	r := newSessionRouter(nil, nil)
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Revoke(t.Context(), "t", "ann", "")))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Revoke(t.Context(), "t", "", "plain/a")))
}
