package router_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A storyWorld is the nodes and clients of a story. Node 1 is the first.
type storyWorld struct {
	t       *testing.T
	where   string // the step
	nodes   []*storyNode
	clients map[string]*storyClient
	release chan struct{} // ends the calls of ECHO

	calls      int64             // of a store, at the last step "calls"
	noAnswer   bool              // a call is made whose answer is not expected yet
	remembered map[string]string // members, by user

	mu           sync.Mutex
	denied       map[string]bool // topics that Authorize refuses
	authorizeFor time.Duration
}

// A storyNode is a router, and an observer if the story asks for it.
type storyNode struct {
	*router.Router
	broker   *unreliableBroker
	dead     bool
	observer *routertest.Conn
	events   recorder[router.PresenceEvent]
	ends     recorder[string]
	closed   recorder[bool] // Conn.Resumable in OnClose
}

// start starts the nodes, with options: nodes=2, within=2m (sessions), grace=0 (presence), topics, queue, sessions
// (of a user), address-sessions, user-history, drop=TOPIC,TOPIC (in OnResume), resume-takes=1s (likewise), ends (OnSessionEnd
// is called), observe (members of club/go).
func (w *storyWorld) start(options map[string]string) {
	if w.nodes != nil {
		return
	}
	w.release = make(chan struct{})
	shared := memory.NewBroker()
	for range int(number(w, options["nodes"], 2)) {
		n := &storyNode{broker: &unreliableBroker{Broker: shared}}
		w.nodes = append(w.nodes, n)
		n.Router = newSessionRouter(n.broker, func(o *router.Options) { w.configure(n, o, options) })
		club := &router.TopicOptions{Authorize: w.authorize, Presence: true, PresenceGrace: duration(w, options["grace"], 0)}
		router.Topic(n.Router, "club/{name}", club)
		router.RPC(n.Router, func(ctx *router.Context, m Echo) (Echoed, error) {
			select {
			case <-w.release:
			case <-ctx.Done():
			}
			return Echoed(m), ctx.Err()
		})
	}
	if _, observe := options["observe"]; !observe {
		return
	}
	for i, n := range w.nodes {
		n.observer = dialSession(w.t, n.Router, fmt.Sprint("observer", i)).Conn
		routertest.Subscribe(n.observer, "club/go")
	}
	_, _ = w.changes(nil)
}

func (w *storyWorld) configure(n *storyNode, o *router.Options, options map[string]string) {
	o.Authenticate = byExpiringToken
	o.Resume.Within = duration(w, options["within"], resumeWithin)
	o.Limits.Topics = int(number(w, options["topics"], 0))
	o.Limits.QueueMessages = int(number(w, options["queue"], 0))
	o.Limits.SessionsPerUser = int(number(w, options["sessions"], 0))
	o.Limits.SessionsPerIP = int(number(w, options["address-sessions"], 0))
	o.Timeouts.Call = duration(w, options["call-timeout"], 0)
	o.OnClose = func(c *router.Conn, _ router.CloseError) { n.closed.add(c.Resumable()) }
	if _, ends := options["ends"]; ends {
		o.Resume.OnSessionEnd = func(e router.SessionEnd) { n.ends.add(e.Identity.UserID + ":" + string(e.Reason)) }
	}
	if _, observe := options["observe"]; observe {
		o.OnPresence = n.events.add
	}
	o.UserHistory.Messages = int(number(w, options["user-history"], 0))
	takes := duration(w, options["resume-takes"], 0)
	if options["drop"] != "" || takes > 0 {
		o.Resume.OnResume = func(_ *router.Context, s router.ResumedSession) error {
			time.Sleep(takes)
			for topic := range strings.SplitSeq(options["drop"], ",") {
				s.Drop(topic)
			}
			return nil
		}
	}
}

func (w *storyWorld) authorize(_ *router.Context, topic router.TopicMatch) error {
	w.mu.Lock()
	denied, d := w.denied[topic.String()], w.authorizeFor
	w.mu.Unlock()
	time.Sleep(d)
	if topic.Value("name") == "broken" {
		panic("no database")
	}
	if denied {
		return errors.Errorf(errors.PermissionDenied, "no member")
	}
	return nil
}

func number(w *storyWorld, text string, or int64) int64 {
	if text == "" {
		return or
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(w.t, err, w.where)
	return n
}

func duration(w *storyWorld, text string, or time.Duration) time.Duration {
	if text == "" {
		return or
	}
	d, err := time.ParseDuration(text)
	require.NoError(w.t, err, w.where)
	return d
}

func (w *storyWorld) node(name string) *storyNode {
	n := number(w, name, 0)
	require.True(w.t, 1 <= n && int(n) <= len(w.nodes), w.where)
	return w.nodes[n-1]
}

func (w *storyWorld) broker(node string) *unreliableBroker { return w.node(node).broker }

func (w *storyWorld) client(name string) *storyClient {
	require.Contains(w.t, w.clients, name, w.where)
	return w.clients[name]
}

// epochOf returns the epoch of a topic, as a node reads it that can.
func (w *storyWorld) epochOf(topic string) string {
	for _, n := range w.nodes {
		if _, at, err := n.ReadHistory(w.t.Context(), topic, broker.Query{}); err == nil {
			return at.Epoch
		}
	}
	require.Fail(w.t, "no epoch of "+topic, w.where)
	return ""
}

// storySteps are the steps by name. Those of a client have its name as their first argument, and those
// of a node its number.
var storySteps map[string]func(w *storyWorld, args []string) (string, error)

func init() {
	storySteps = map[string]func(w *storyWorld, args []string) (string, error){
		"connect": (*storyWorld).connect, "open": (*storyWorld).open, "greet": (*storyWorld).greet, "gets": (*storyWorld).gets,
		"answer": (*storyWorld).answer, "waits": (*storyWorld).waits, "resume": (*storyWorld).resume, "ack": (*storyWorld).ack,
		"closed": (*storyWorld).closed, "changes": (*storyWorld).changes, "stays": (*storyWorld).stays, "kill": (*storyWorld).kill,
		"reason": (*storyWorld).reason, "says": (*storyWorld).says,
		"subscribe": func(w *storyWorld, a []string) (string, error) {
			return w.request(w.client(a[0]), "$ws:subscribe", w.presented(a[1]))
		},
		"unsubscribe": func(w *storyWorld, a []string) (string, error) {
			return w.request(w.client(a[0]), "$ws:unsubscribe", w.presented(a[1]))
		},
		"echo": func(w *storyWorld, a []string) (string, error) { return w.request(w.client(a[0]), "ECHO", `{}`) },
		"auth": func(w *storyWorld, a []string) (string, error) {
			return w.request(w.client(a[0]), "$ws:auth", fmt.Sprintf(`{"token":%q}`, a[1]))
		},
		"release": func(w *storyWorld, _ []string) (string, error) { close(w.release); return "", nil },
		// What handlers do: grant NAME TOPIC..., join NAME TOPIC INFO, withdraw NAME TOPIC, identity NAME USER [VALID], drop NAME CODE.
		"grant": func(w *storyWorld, a []string) (string, error) {
			var errs []error
			for _, topic := range a[1:] {
				errs = append(errs, w.client(a[0]).conn.Subscribe(topic))
			}
			synctest.Wait()
			return codeOf(errors.Join(errs...))
		},
		"join": func(w *storyWorld, a []string) (string, error) {
			err := w.client(a[0]).conn.Subscribe(a[1], router.Present(a[2]))
			synctest.Wait()
			return codeOf(err)
		},
		"withdraw": func(w *storyWorld, a []string) (string, error) {
			w.client(a[0]).conn.Unsubscribe(a[1])
			return "", nil
		},
		"identity": func(w *storyWorld, a []string) (string, error) {
			req, _ := http.NewRequest(http.MethodGet, "/?access_token="+strings.Join(a[1:], ":"), nil)
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
			topics, err := storySteps["has"](w, a)
			return fmt.Sprint(len(strings.Fields(topics))), err
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
		// What the application does: publish NODE TOPIC TEXT..., revoke NODE USER PATTERN, disconnect NODE USER CODE, deny TOPIC,
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
		"deny":      func(w *storyWorld, a []string) (string, error) { return w.setDenied(a[0], true) },
		"allow":     func(w *storyWorld, a []string) (string, error) { return w.setDenied(a[0], false) },
		"authorize": func(w *storyWorld, a []string) (string, error) { w.authorizeFor = duration(w, a[0], 0); return "", nil },
		// Time and faults: wait DURATION, settle, store NODE MODE, silent NODE, heard NODE, unread NODE, read NODE, shutdown NODE,
		// late NODE (what the others learn of its members), arrive (what was late).
		"wait": func(w *storyWorld, a []string) (string, error) {
			time.Sleep(duration(w, a[0], 0))
			synctest.Wait()
			return "", nil
		},
		"settle":   func(*storyWorld, []string) (string, error) { synctest.Wait(); return "", nil },
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

func (w *storyWorld) setDenied(topic string, denied bool) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied[topic] = denied
	return "", nil
}

func codeOf(err error) (string, error) { return string(errors.CodeOf(err)), err }

// kill ends a node as if its process were killed.
func (w *storyWorld) kill(args []string) (string, error) {
	n := w.node(args[0])
	n.dead = true
	_ = n.broker.node.Close(w.t.Context())
	return "", nil
}

// stays: USER DURATION lets time pass in small steps, in each of which the member must be there.
func (w *storyWorld) stays(args []string) (string, error) {
	const step = 250 * time.Millisecond
	for range duration(w, args[1], 0)/step + 1 {
		for _, n := range w.nodes {
			if n.dead {
				continue
			}
			members := slices.DeleteFunc(n.Presence("club/go"), func(m router.Member) bool { return m.UserID != args[0] })
			require.Len(w.t, members, 1, w.where)
			if w.remembered[args[0]] == "" {
				w.remembered[args[0]] = fmt.Sprint(members[0])
			}
			require.Equal(w.t, w.remembered[args[0]], fmt.Sprint(members[0]), w.where)
		}
		time.Sleep(step)
		synctest.Wait()
	}
	return "", nil
}

// changes returns which members have joined and left since the last call, as "+USER:INFO" and "-USER:INFO". OnPresence and
// the observers of all nodes that live must agree.
func (w *storyWorld) changes([]string) (string, error) {
	time.Sleep(time.Second) // longer than changes are collected
	synctest.Wait()
	var all []string
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		var events, shown []string
		for _, e := range n.events.take() {
			if e.Joined {
				events = append(events, signed("+", e.Member)...)
			} else {
				events = append(events, signed("-", e.Member)...)
			}
		}
		for n.observer.Pending() > 0 {
			m := routertest.ReceivePresence(n.observer)
			shown = append(append(shown, signed("-", m.Left...)...), signed("+", m.Joined...)...)
		}
		slices.Sort(events)
		slices.Sort(shown)
		all = append(all, strings.Join(events, " "), strings.Join(shown, " "))
	}
	for _, seen := range all {
		require.Equal(w.t, all[0], seen, w.where)
	}
	return all[0], nil
}

// signed describes members that are no observers.
func signed(sign string, members ...router.Member) (all []string) {
	for _, name := range names(members) {
		if !strings.HasPrefix(name, "observer") {
			all = append(all, sign+name)
		}
	}
	return all
}
