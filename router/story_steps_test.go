package router_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// storySteps returns the steps by name. Those of a client have its name as their first argument, and those
// of a node its number.
func storySteps() map[string]func(w *storyWorld, args []string) (string, error) {
	return map[string]func(w *storyWorld, args []string) (string, error){
		"connect": (*storyWorld).connect, "open": (*storyWorld).open, "greet": (*storyWorld).greet, "gets": (*storyWorld).gets, "how-many-texts": (*storyWorld).texts,
		"answer": (*storyWorld).answer, "asks": (*storyWorld).asks, "waits": (*storyWorld).waits, "resume": (*storyWorld).resume, "ack": (*storyWorld).ack,
		"closed": (*storyWorld).closed, "changes": (*storyWorld).changes, "stays": (*storyWorld).stays, "kill": (*storyWorld).kill,
		"reason": (*storyWorld).reason, "says": (*storyWorld).says, "set": (*storyWorld).set, "fill": (*storyWorld).fill,
		"quotes": (*storyWorld).quotes, "keys": (*storyWorld).keys, "messages": (*storyWorld).messages, "notices": (*storyWorld).notices,
		"subscribe": func(w *storyWorld, a []string) (string, error) {
			return w.request(w.client(a[0]), "$ws:subscribe", w.presented(w.client(a[0]), a[1]))
		},
		"unsubscribe": func(w *storyWorld, a []string) (string, error) {
			return w.request(w.client(a[0]), "$ws:unsubscribe", w.presented(w.client(a[0]), a[1]))
		},
		"echo": func(w *storyWorld, a []string) (string, error) { return w.request(w.client(a[0]), "ECHO", `{}`) },
		"auth": func(w *storyWorld, a []string) (string, error) {
			return w.request(w.client(a[0]), "$ws:auth", fmt.Sprintf(`{"token":%q}`, a[1]))
		},
		// timeout NAME MILLISECONDS is for the following calls, of which 0 have none.
		"timeout": func(w *storyWorld, a []string) (string, error) {
			if w.client(a[0]).meta = ""; a[1] != "0" {
				w.client(a[0]).meta = `,"timeoutMs":` + a[1]
			}
			return "", nil
		},
		// stall NAME sends an event whose handler runs until the step "release", even if the connection has ended.
		"stall": func(w *storyWorld, a []string) (string, error) { w.client(a[0]).Send(Nothing{}); return "", nil },
		// call NAME TYPE PAYLOAD makes a call.
		"call":    func(w *storyWorld, a []string) (string, error) { return w.request(w.client(a[0]), a[1], a[2]) },
		"release": func(w *storyWorld, _ []string) (string, error) { close(w.release); return "", nil },
		// What handlers do: grant NAME TOPIC..., join NAME TOPIC INFO, hide NAME TOPIC, since NAME TOPIC, withdraw NAME TOPIC, identity NAME USER [VALID], drop NAME CODE.
		"grant": func(w *storyWorld, a []string) (string, error) {
			var errs []error
			for _, topic := range a[1:] {
				errs = append(errs, w.client(a[0]).conn.Subscribe(topic))
			}
			return codeOf(errors.Join(errs...))
		},
		"join": func(w *storyWorld, a []string) (string, error) {
			err := w.client(a[0]).conn.Subscribe(a[1], router.Present(a[2]))
			synctest.Wait()
			return codeOf(err)
		},
		"hide": func(w *storyWorld, a []string) (string, error) {
			return codeOf(w.client(a[0]).conn.Subscribe(a[1], router.Hidden()))
		},
		// since NAME TOPIC [OFFSET]: from an offset on, or from now on. state NAME TOPIC: with the state. last NAME TOPIC N: with
		// the latest publications.
		"last": func(w *storyWorld, a []string) (string, error) {
			return codeOf(w.client(a[0]).conn.Subscribe(a[1], router.Last(int(number(w, a[2], 0)), nil)))
		},
		"since": func(w *storyWorld, a []string) (string, error) {
			at := broker.Position{}
			if len(a) > 2 {
				at = broker.Position{Epoch: w.epochOf(w.client(a[0]), a[1]), Offset: uint64(number(w, a[2], 0))} //nolint:gosec // a test
			}
			return codeOf(w.client(a[0]).conn.Subscribe(a[1], router.Since(at, nil)))
		},
		"state": func(w *storyWorld, a []string) (string, error) {
			return codeOf(w.client(a[0]).conn.Subscribe(a[1], router.CurrentState(nil)))
		},
		"withdraw": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).conn.Unsubscribe(a[1])
			return "", nil
		},
		"identity": func(w *storyWorld, a []string) (string, error) {
			req, _ := http.NewRequest(http.MethodGet, "/?access_token="+strings.Join(append([]string{userOf(a[1])}, a[2:]...), ":"), nil)
			id, err := byExpiringToken(req)
			return codeOf(errors.Join(err, w.client(a[0]).conn.SetIdentity(id)))
		},
		"drop": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).conn.Close(router.StatusCode(number(w, a[1], 0)), "")
			return "", nil
		},
		// What clients do: close NAME CODE, abort NAME, invalid NAME (sends invalid UTF-8).
		"close": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).CloseWith(router.StatusCode(number(w, a[1], 0)), "")
			synctest.Wait()
			return "", nil
		},
		"abort": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).Abort()
			synctest.Wait()
			return "", nil
		},
		"invalid": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).SendText("\xff")
			synctest.Wait()
			return "", nil
		},
		// What is seen: has NAME TOPIC..., how-many NAME TOPIC..., conns NODE, presence NODE TOPIC, ends NODE, resumable NODE, away NODE, owners NODE.
		"has": func(w *storyWorld, a []string) (string, error) {
			c := w.client(a[0])
			return strings.Join(slices.DeleteFunc(a[1:], func(topic string) bool { return !c.conn.Subscribed(topic) }), " "), nil
		},
		"how-many": func(w *storyWorld, a []string) (string, error) {
			topics, err := storySteps()["has"](w, a)
			return fmt.Sprint(len(strings.Fields(topics))), err
		},
		"whoami": func(w *storyWorld, a []string) (string, error) { return w.client(a[0]).conn.Identity().UserID, nil },
		// refused NODE USER [VALID] returns the status of a handshake that is refused.
		"refused": func(w *storyWorld, a []string) (string, error) {
			token := routertest.Token(strings.Join(a[1:], ":"))
			return fmt.Sprint(routertest.Refused(w.t, w.node(a[0]).Router, token).StatusCode), nil
		},
		// events NODE returns what OnPresence was called with since the last one, with the option events.
		"events": func(w *storyWorld, a []string) (string, error) {
			return strings.Join(w.node(a[0]).presenceEvents(), " "), nil
		},
		"lost":    func(w *storyWorld, a []string) (string, error) { return fmt.Sprint(w.node(a[0]).lost.take()), nil },
		"resumed": func(w *storyWorld, a []string) (string, error) { return fmt.Sprint(w.node(a[0]).resumed.take()), nil },
		// status NAME returns "open", or the code with which the server has closed the connection.
		"status": func(w *storyWorld, a []string) (string, error) {
			synctest.Wait()
			ctx := w.client(a[0]).conn.Context()
			if ctx.Err() == nil {
				return "open", nil
			}
			closed, _ := errors.AsType[*router.CloseError](context.Cause(ctx))
			return fmt.Sprint(int(closed.Code)), nil
		},
		"conns": func(w *storyWorld, a []string) (string, error) {
			return fmt.Sprint(len(collect(w.node(a[0]).Router))), nil
		},
		"presence": func(w *storyWorld, a []string) (string, error) {
			return strings.Join(names(w.node(a[0]).Presence(a[1])), " "), nil
		},
		"ends": func(w *storyWorld, a []string) (string, error) {
			return strings.Join(w.node(a[0]).ends.take(), " "), nil
		},
		"resumable": func(w *storyWorld, a []string) (string, error) { return fmt.Sprint(w.node(a[0]).closed.take()), nil },
		"away":      func(w *storyWorld, a []string) (string, error) { return fmt.Sprint(w.node(a[0]).AwaySessions()), nil },
		"owners":    func(w *storyWorld, a []string) (string, error) { return fmt.Sprint(w.node(a[0]).SessionOwners()), nil },
		// What the application does: publish NODE TOPIC TEXT..., publish-local, revoke NODE USER PATTERN, disconnect NODE USER CODE, deny TOPIC,
		// allow TOPIC, authorize DURATION.
		"publish": func(w *storyWorld, a []string) (string, error) {
			for _, text := range a[2:] {
				if err := w.node(a[0]).Publish(a[1], Blob{Text: text}); err != nil {
					return codeOf(err)
				}
			}
			synctest.Wait()
			return "", nil
		},
		"revoke": func(w *storyWorld, a []string) (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			return codeOf(w.node(a[0]).Revoke(ctx, "t", a[1], a[2]))
		},
		"disconnect": func(w *storyWorld, a []string) (string, error) {
			_, err := w.node(a[0]).DisconnectUser("t", a[1], router.StatusCode(number(w, a[2], 0)), "")
			return codeOf(err)
		},
		"publish-local": func(w *storyWorld, a []string) (string, error) {
			return codeOf(w.node(a[0]).Publish(a[1], Blob{Text: a[2]}, router.Local()))
		},
		// say NAME TOPIC TEXT publishes to the others.
		"say": func(w *storyWorld, a []string) (string, error) {
			err := w.nodeOf(w.client(a[0])).Publish(a[1], Blob{Text: a[2]}, router.Except(w.client(a[0]).conn))
			synctest.Wait()
			return codeOf(err)
		},
		// tell NODE USER TEXT... returns how many connections of the node receive the last message.
		"tell": func(w *storyWorld, a []string) (result string, err error) {
			for _, text := range a[2:] {
				n, err := w.node(a[0]).SendToUser("t", strings.TrimPrefix(a[1], "anon"), Blob{Text: text})
				if result = fmt.Sprint(n); err != nil {
					return codeOf(err)
				}
			}
			synctest.Wait()
			return result, nil
		},
		// deny hidden: of all topics.
		"deny":      func(w *storyWorld, a []string) (string, error) { return w.setDenied(a[0], true) },
		"allow":     func(w *storyWorld, a []string) (string, error) { return w.setDenied(a[0], false) },
		"authorize": func(w *storyWorld, a []string) (string, error) { w.authorizeFor = duration(w, a[0], 0); return "", nil },
		// Time and faults: wait DURATION, settle, store NODE MODE, silent NODE, heard NODE, unread NODE, readable NODE, shutdown NODE, cut NODE, back NODE,
		// slow NODE, fast NODE (reads), pause NAME, read NAME,
		// late NODE (what the others learn of its members), arrive (what was late).
		"wait": func(w *storyWorld, a []string) (string, error) {
			time.Sleep(duration(w, a[0], 0))
			synctest.Wait()
			return "", nil
		},
		// elapsed returns the milliseconds since the last one.
		"elapsed": func(w *storyWorld, _ []string) (string, error) {
			d := time.Since(w.clock)
			w.clock = time.Now()
			return fmt.Sprint(d.Milliseconds()), nil
		},
		"settle": func(*storyWorld, []string) (string, error) { synctest.Wait(); return "", nil },
		"cut":    func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).setCut(true); return "", nil },
		"back":   func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).setCut(false); return "", nil },
		"slow":   func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).slow.Store(true); return "", nil },
		"fast":   func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).slow.Store(false); return "", nil },
		// undelivered NODE, delivered NODE (publications of the store). ahead NODE N: so many reads of a state have a position that no node reaches.
		"undelivered": func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).drop.Store(true); return "", nil },
		"delivered":   func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).drop.Store(false); return "", nil },
		"ahead": func(w *storyWorld, a []string) (string, error) {
			w.broker(a[0]).ahead.Store(int32(number(w, a[1], 0))) //nolint:gosec // small
			return "", nil
		},
		// errors NODE returns the types of the messages of which OnError was called since the last one.
		"errors": func(w *storyWorld, a []string) (string, error) {
			return strings.Join(w.node(a[0]).errors.take(), " "), nil
		},
		"pause": func(w *storyWorld, a []string) (string, error) { w.client(a[0]).Pause(); return "", nil },
		"read": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).Resume()
			synctest.Wait()
			return "", nil
		},
		// go STEP runs a step that waits. The step "done" waits for its result.
		"go": func(w *storyWorld, a []string) (string, error) {
			w.going = make(chan string, 1)
			go func() {
				result, _ := storySteps()[a[0]](w, a[1:])
				w.going <- result
			}()
			synctest.Wait()
			return "", nil
		},
		"done":     func(w *storyWorld, _ []string) (string, error) { return <-w.going, nil },
		"silent":   func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).silent.Store(true); return "", nil },
		"heard":    func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).silent.Store(false); return "", nil },
		"unread":   func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).away.Store(true); return "", nil },
		"readable": func(w *storyWorld, a []string) (string, error) { w.broker(a[0]).away.Store(false); return "", nil },
		"store": func(w *storyWorld, a []string) (string, error) {
			modes := []string{"works", "away", "forgets", "loses", "hangs", "slow", "keeps"}
			require.Contains(w.t, modes, a[1], w.where)
			w.broker(a[0]).store.Store(int32(slices.Index(modes, a[1]))) //nolint:gosec // small
			return "", nil
		},
		// calls NODE returns whether there were as many calls that change values as expected since the last one: "5 to 40".
		"calls": func(w *storyWorld, a []string) (string, error) {
			b := w.broker(a[0])
			n := b.changes.Load() + b.failures.Load()
			w.calls, n = n, n-w.calls
			return fmt.Sprint(n), nil
		},
		// keep-record NAME, restore-record NAME: a store fails over to a replica with an older record of a session.
		"keep-record": func(w *storyWorld, a []string) (string, error) {
			value, err := w.nodes[0].broker.node.LoadValue(w.t.Context(), "session "+w.client(a[0]).token[:26])
			require.NotEmpty(w.t, value.Data, w.where)
			w.record = value.Data
			return codeOf(err)
		},
		"restore-record": func(w *storyWorld, a []string) (string, error) {
			store, key := w.nodes[0].broker.node, "session "+w.client(a[0]).token[:26]
			current, err := store.LoadValue(w.t.Context(), key)
			require.NoError(w.t, err, w.where)
			_, err = store.StoreValue(w.t.Context(), key, w.record, current.Version, time.Hour)
			return codeOf(err)
		},
		"shutdown": func(w *storyWorld, a []string) (string, error) {
			w.node(a[0]).dead = true
			go func() { assert.NoError(w.t, w.node(a[0]).Shutdown(context.Background())) }()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			return "", nil
		},
		"late": func(w *storyWorld, a []string) (string, error) {
			for _, n := range w.nodes {
				if n != w.node(a[0]) {
					n.broker.delay(a[0])
				}
			}
			return "", nil
		},
		"arrive": func(w *storyWorld, _ []string) (string, error) {
			for _, n := range w.nodes {
				n.broker.catchUp()
			}
			synctest.Wait()
			return "", nil
		},
	}
}
