package chat

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newChat returns the WebSocket endpoint of a server with the given flags.
func newChat(t *testing.T, flags ...string) http.Handler {
	t.Helper()
	return newServer(newConfig(t, flags...)).router
}

func newConfig(t *testing.T, flags ...string) config {
	t.Helper()
	cfg, err := parseFlags(flags, io.Discard)
	require.NoError(t, err)
	return cfg
}

func withToken(token string) routertest.Option { return routertest.Token(token) }

func TestRoom_MembersTalkSearchAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t)
		ann, bob := routertest.Dial(t, chat, withToken("ann")), routertest.Dial(t, chat, withToken("bob"))
		joined := routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"})
		synctest.Wait() // until the room has received it: a member that joins before receives it, too
		epoch := joined.Epoch
		assert.NotEmpty(t, epoch)
		assert.Equal(t, RoomJoined{Room: "go", Users: []string{"ann"}, Position: Position{Epoch: epoch}}, joined)
		stored := routertest.Call[Stored](ann, Say{Room: "go", Text: "anybody here?"})
		said := routertest.Receive[Said](ann)
		assert.Equal(t, Stored{"go", said.ID}, stored)
		assert.NotEmpty(t, said.ID)
		assert.Equal(t, Said{"go", "ann", "anybody here?", time.Now().UTC(), said.ID}, said)

		joined = routertest.Call[RoomJoined](bob, JoinRoom{Room: "go"})
		assert.Equal(t, RoomJoined{Room: "go", Users: []string{"ann", "bob"}, Position: Position{epoch, 1}, History: []Said{said}}, joined)
		assert.Equal(t, UserJoined{"go", "bob"}, routertest.Receive[UserJoined](ann))
		routertest.Call[Stored](bob, Say{Room: "go", Text: "<img onerror=alert(1)>"})
		assert.Equal(t, "<img onerror=alert(1)>", routertest.Receive[Said](ann).Text)
		assert.Equal(t, "bob", routertest.Receive[Said](bob).User)

		assert.Equal(t, Users{"go", []string{"ann", "bob"}}, routertest.Call[Users](bob, Who{"go"}))
		assert.Equal(t, []Said{said}, routertest.Call[HistoryFound](bob, SearchHistory{"go", "ANYBODY"}).Matches)
		assert.Empty(t, routertest.Call[HistoryFound](bob, SearchHistory{"rust", "anybody"}).Matches)

		bob.Send(LeaveRoom{"go"})
		assert.Equal(t, UserLeft{"go", "bob"}, routertest.Receive[UserLeft](ann))
		bob.Send(Say{Room: "go", Text: "one more thing"})
		assert.Equal(t, errors.FailedPrecondition, routertest.ReceiveError(bob).Code)
		synctest.Wait()
		assert.Zero(t, ann.Pending())
		assert.Zero(t, bob.Pending())
	})
}

func TestRoom_MessageSentRightAfterJoinIsAccepted(t *testing.T) {
	chat := newChat(t)
	ann := routertest.Dial(t, chat, withToken("ann"))
	join := routertest.Start(ann, JoinRoom{Room: "go"})
	routertest.Call[Stored](ann, Say{Room: "go", Text: "hi"})
	routertest.ReceiveAnswer[RoomJoined](join)
	assert.Equal(t, "hi", routertest.Receive[Said](ann).Text)
}

func TestRoom_UserWithTwoConnectionsIsListedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t)
		bob := routertest.Dial(t, chat, withToken("bob"))
		routertest.Call[RoomJoined](bob, JoinRoom{Room: "go"})
		phone, desk := routertest.Dial(t, chat, withToken("ann")), routertest.Dial(t, chat, withToken("ann"))
		for _, conn := range []*routertest.Conn{phone, desk, desk} {
			assert.Equal(t, []string{"ann", "bob"}, routertest.Call[RoomJoined](conn, JoinRoom{Room: "go"}).Users)
		}
		assert.Equal(t, UserJoined{"go", "ann"}, routertest.Receive[UserJoined](bob))
		phone.Close()
		synctest.Wait()
		assert.Zero(t, bob.Pending())
		desk.Abort()
		assert.Equal(t, UserLeft{"go", "ann"}, routertest.Receive[UserLeft](bob))
	})
}

func TestRoom_TenantsAreIsolated(t *testing.T) {
	chat := newChat(t)
	acme, initech := routertest.Dial(t, chat, withToken("acme:ann")), routertest.Dial(t, chat, withToken("initech:ann"))
	routertest.Call[RoomJoined](acme, JoinRoom{Room: "go"})
	assert.Equal(t, []string{"ann"}, routertest.Call[RoomJoined](initech, JoinRoom{Room: "go"}).Users)
	routertest.Call[Stored](acme, Say{Room: "go", Text: "psst"})
	routertest.Receive[Said](acme)
	assert.Empty(t, routertest.Call[HistoryFound](initech, SearchHistory{"go", "psst"}).Matches)
}

func TestGuests_AreDistinguishedAndLimitedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bucket refills by the clock
		chat := newChat(t, "-capacity=1")
		one, two, three := routertest.RemoteAddr("192.0.2.1:1"), routertest.RemoteAddr("192.0.2.1:2"), routertest.RemoteAddr("192.0.2.2:1")
		users := routertest.Call[RoomJoined](routertest.Dial(t, chat, one), JoinRoom{Room: "go"}).Users
		assert.Len(t, users, 1)
		assert.NotContains(t, users[0], "192.0.2.1")
		assert.Equal(t, errors.ResourceExhausted, routertest.CallError(routertest.Dial(t, chat, two), JoinRoom{Room: "go"}).Code, "guests of one address share a bucket")
		assert.Len(t, routertest.Call[RoomJoined](routertest.Dial(t, chat, three), JoinRoom{Room: "go"}).Users, 2)
	})
}

func TestAuthenticate_RejectsMalformedTokens(t *testing.T) {
	chat := newChat(t)
	for _, token := range []string{"ann", "acme:ann", "a.b_c-D9:" + strings.Repeat("x", 32), ""} {
		routertest.Call[Users](routertest.Dial(t, chat, withToken(token)), Who{"go"})
	}
	rejected := router.CloseError{Code: router.StatusUnauthenticated, Reason: `{"code":"UNAUTHENTICATED","message":"use NAME or TENANT:NAME with 1 to 32 characters of A-Z a-z 0-9 _ . - each"}`}
	for _, token := range []string{":", "acme:", ":ann", "a:b:c", "ann smith", "änn", "a~b", strings.Repeat("x", 33), "ann\n"} {
		assert.Equal(t, rejected, routertest.Dial(t, chat, withToken(token)).Closed(), "%q", token)
	}
	routertest.Call[Users](routertest.Dial(t, chat, routertest.Header("Sec-WebSocket-Protocol", "bearer.ann")), Who{"go"})
	assert.Equal(t, rejected, routertest.Dial(t, chat, routertest.Header("Sec-WebSocket-Protocol", "bearer.a~b")).Closed())
}

func TestRejections_AreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		previous := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(previous)
		chat := newChat(t, "-capacity=1")
		routertest.Dial(t, chat, withToken("a b"), routertest.RemoteAddr("192.0.2.1:1")).Closed()
		ann := routertest.Dial(t, chat, withToken("acme:ann"), routertest.RemoteAddr("192.0.2.2:1"))
		routertest.Call[Users](ann, Who{"go"})
		assert.Equal(t, errors.ResourceExhausted, routertest.CallError(ann, Who{"go"}).Code)
		synctest.Wait()
		assert.Contains(t, log.String(), `msg="client refused" tenant="" user="" ip=192.0.2.1 type="" code=UNAUTHENTICATED reason=authentication`)
		assert.Contains(t, log.String(), `msg="client refused" tenant=acme user=ann ip=192.0.2.2 type=WHO code=RESOURCE_EXHAUSTED reason=ingress err="rate limit exceeded: cost 1, capacity 1, policy \"chat\""`)
	})
}

func TestMessages_InvalidFieldsAreRejected(t *testing.T) {
	chat := newChat(t)
	ann := routertest.Dial(t, chat, withToken("ann"))
	routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"})
	for _, m := range []router.Message{
		Say{Room: "go", Text: ""},
		Say{Room: "go", Text: strings.Repeat("é", 501)},
		Say{Room: "", Text: "hi"},
		JoinRoom{Room: ""},
		JoinRoom{Room: strings.Repeat("x", 65)},
		Who{""},
		LeaveRoom{""},
		Say{Room: "go", Text: "hi", ID: strings.Repeat("x", 65)},
		SearchHistory{"go", ""},
		SearchHistory{"go", strings.Repeat("x", 101)},
	} {
		e := routertest.CallError(ann, m)
		assert.Equal(t, errors.InvalidArgument, e.Code, "%+v", m)
		assert.NotEmpty(t, errors.DetailsOf[errors.FieldDetails](e).Field, "%+v", m)
	}
	assert.Equal(t, errors.FailedPrecondition, routertest.CallError(ann, Say{Room: "rust", Text: "hi"}).Code)
	routertest.Call[Stored](ann, Say{Room: "go", Text: strings.Repeat("é", 500)})
	routertest.Receive[Said](ann)
}

func TestRateLimit_SearchCostsFiveTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t, "-capacity=7", "-refill=1", "-key=user")
		ann := routertest.Dial(t, chat, withToken("ann"))
		routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"}) // 6 left
		routertest.Call[HistoryFound](ann, SearchHistory{"go", "x"})
		e := routertest.CallError(ann, SearchHistory{"go", "x"}) // 1 left, 5 needed
		assert.Equal(t, errors.ResourceExhausted, e.Code)
		assert.Equal(t, 4*time.Second, e.RetryAfter)
		assert.Equal(t, map[string]any{"kind": "rate", "observed": 5., "limit": 7., "policy": "chat"}, e.Details)
		time.Sleep(e.RetryAfter)
		routertest.Call[HistoryFound](ann, SearchHistory{"go", "x"})
	})
}

func TestRateLimit_ActionFollowsFlag(t *testing.T) {
	for action, check := range map[string]func(t *testing.T, ann *routertest.Conn){
		"send": func(t *testing.T, ann *routertest.Conn) {
			assert.Equal(t, time.Second, routertest.ReceiveError(ann).RetryAfter)
		},
		"close": func(t *testing.T, ann *routertest.Conn) {
			assert.Equal(t, router.CloseError{Code: 1013, Reason: `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":1000,"message":"rate limit exceeded"}`}, ann.Closed())
		},
		"custom": func(t *testing.T, ann *routertest.Conn) {
			assert.Equal(t, SlowDown{"WHO", 1000}, routertest.Receive[SlowDown](ann))
		},
	} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ann := routertest.Dial(t, newChat(t, "-capacity=1", "-refill=1", "-on-exceeded="+action), withToken("ann"))
				ann.Send(Who{"go"})
				routertest.Receive[Users](ann)
				ann.Send(Who{"go"})
				check(t, ann)
			})
		})
	}
}

func TestRoom_TooManyRoomsAreRejectedUntilOneIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t, "-capacity=10000", "-max-connections=0")
		var ann *routertest.Conn
		bob := routertest.Dial(t, chat, withToken("bob"))
		for n := maxRooms - 1; n >= 0; n-- {
			if n%maxRoomsPerConn == maxRoomsPerConn-1 {
				ann = routertest.Dial(t, chat, withToken("ann"))
			}
			routertest.Call[RoomJoined](ann, JoinRoom{Room: fmt.Sprint(n)})
		}
		assert.Equal(t, errors.ResourceExhausted, routertest.CallError(bob, JoinRoom{Room: "one more"}).Code)
		routertest.Call[RoomJoined](bob, JoinRoom{Room: "7"})
		ann.Send(LeaveRoom{"6"})
		ann.Send(LeaveRoom{"7"}) // bob is still there
		synctest.Wait()
		routertest.Call[RoomJoined](bob, JoinRoom{Room: "one more"})
		assert.Equal(t, errors.ResourceExhausted, routertest.CallError(bob, JoinRoom{Room: "yet another"}).Code)
	})
}

func TestRoom_ConnectionJoinsFewRooms(t *testing.T) {
	chat := newChat(t)
	ann := routertest.Dial(t, chat, withToken("ann"))
	for n := range maxRoomsPerConn {
		routertest.Call[RoomJoined](ann, JoinRoom{Room: fmt.Sprint(n)})
	}
	e := routertest.CallError(ann, JoinRoom{Room: "one more"})
	assert.Equal(t, errors.ResourceExhausted, e.Code)
	assert.Equal(t, map[string]any{"kind": "topics", "observed": maxRoomsPerConn + 1., "limit": float64(maxRoomsPerConn)}, e.Details)
	routertest.Call[RoomJoined](ann, JoinRoom{Room: "0"}) // a member may load the room again
	ann.Send(LeaveRoom{"0"})
	routertest.Call[RoomJoined](ann, JoinRoom{Room: "one more"})
}

func TestRoom_ClientsSubscribeOnlyByJoining(t *testing.T) {
	ann := routertest.Dial(t, newChat(t), withToken("acme:ann"))
	assert.Equal(t, errors.PermissionDenied, routertest.SubscribeError(ann, "room/acme/go").Code)
	assert.Equal(t, errors.NotFound, routertest.SubscribeError(ann, "room/acme").Code)
}

func TestTopicOf_IsUnambiguous(t *testing.T) {
	topics := map[string]bool{}
	for _, tenant := range []string{"", "acme", "room"} {
		for _, room := range []string{"go", "/", "//go", "acme/go", "~", "~/go", strings.Repeat("x", 64)} {
			topic := topicOf(router.Identity{TenantID: tenant}, room)
			assert.NotContains(t, topics, topic)
			topics[topic] = true
			assert.Equal(t, room, roomOf(topic))
		}
	}
}
