package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestResume_TokensThatAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		user  string
		token func(token string) string
		want  errors.Code
	}{
		"guessed":        {"ann", func(string) string { return "AAAAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAA" }, errors.NotFound},
		"other secret":   {"ann", func(token string) string { return token[:27] + "AAAAAAAAAAAAAAAAAAAAAAAAAA" }, errors.NotFound},
		"no secret":      {"ann", func(token string) string { return token[:27] }, errors.NotFound},
		"secret cut":     {"ann", func(token string) string { return token[:52] }, errors.NotFound},
		"longer secret":  {"ann", func(token string) string { return token + "A" }, errors.NotFound},
		"empty":          {"ann", func(string) string { return "" }, errors.NotFound},
		"malformed":      {"ann", func(token string) string { return "a" + token[1:] }, errors.NotFound},
		"only the ID":    {"ann", func(token string) string { return token[:26] }, errors.NotFound},
		"of ann for bob": {"bob", func(token string) string { return token }, errors.PermissionDenied},
		"of ann for all": {"", func(token string) string { return token }, errors.PermissionDenied},
		"guessed by bob": {"bob", func(token string) string { return token[:27] + "AAAAAAAAAAAAAAAAAAAAAAAAAA" }, errors.NotFound},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newSessionRouter(nil, nil)
			old := dialSession(t, r, "ann").hello()
			require.Len(t, old.token, 53)
			c := dialSession(t, r, test.user)
			assert.Equal(t, test.want, c.resumeError(test.token(old.token)))
			synctest.Wait()
			assert.Len(t, collect(r), 2, "the old connection is not disturbed")
			dialSession(t, r, "ann").resume(old.token, "")
		})
	}
}

func TestResume_TokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		one, two := dialSession(t, r, "ann").hello(), dialSession(t, r, "ann").hello()
		one.Abort()
		two.Abort()
		time.Sleep(resumeWithin - time.Millisecond)
		dialSession(t, r, "ann").resume(one.token, "")
		time.Sleep(time.Millisecond)
		assert.Equal(t, errors.NotFound, dialSession(t, r, "ann").resumeError(two.token))
	})
}

func TestResume_TokenIsValidUntilTheNextOneIsAcknowledgedOrUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		first := dialSession(t, one, "ann").hello()
		lost := dialSession(t, two, "ann")
		lost.resume(first.token, "") // the answer does not reach the client
		again := dialSession(t, one, "ann")
		again.resume(first.token, "")
		assert.Equal(t, router.StatusSuperseded, lost.Closed().Code)
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(lost.token), "it was replaced")
		again.acknowledge()
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(first.token), "the next one is acknowledged")
		used := dialSession(t, two, "ann")
		used.resume(again.token, "")
		third := dialSession(t, one, "ann")
		third.resume(used.token, "")
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(again.token), "the next one was used")
	})
}

func TestResume_AcknowledgmentWithAnotherIDHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r1"}}`) // before the session is resumed
		c.SendText(`{"type":"$ws:ack"}`)
		c.resume(old.token, "")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"other"}}`)
		c.SendText(`{"type":"$ws:ack"}`)
		synctest.Wait()
		assert.Zero(t, c.Pending())
		dialSession(t, r, "ann").resume(old.token, "")
	})
}
