package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
)

// userHistory is that of the routers in these tests, unless they say otherwise.
var userHistory = router.History{Messages: 100}

// newUserLogRouter returns a router with sessions and a history for each user.
func newUserLogRouter(b broker.Broker, change func(*router.Options)) *router.Router {
	return newSessionRouter(b, func(o *router.Options) {
		o.UserHistory = userHistory
		if change != nil {
			change(o)
		}
	})
}

// sendTexts sends messages to a user of the tenant "t", and waits until they have arrived.
func sendTexts(t *testing.T, r *router.Router, user string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := r.SendToUser("t", user, Blob{Text: fmt.Sprint(n)})
		require.NoError(t, err)
	}
	synctest.Wait()
}

// numbers returns the texts of messages.
func numbers(from, to int) (texts []string) {
	for n := from; n <= to; n++ {
		texts = append(texts, fmt.Sprint(n))
	}
	return texts
}

// dialLog connects a client that greets, and returns the position of the messages to its user.
func dialLog(t *testing.T, r *router.Router, user string) (*sessionClient, subscribed) {
	t.Helper()
	c := dialSession(t, r, user).hello()
	synctest.Wait()
	return c, decodeFrame[subscribed](t, c.Next())
}
