package router_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	record     []byte            // of a session, as it was
	clock      time.Time         // of the last step "elapsed"
	noAnswer   bool              // a call is made whose answer is not expected yet
	remembered map[string]string // members, by user
	going      chan string       // the result of the step "go"

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
	lost     recorder[int]
	resumed  recorder[[]string] // topics that OnResume has seen
	closed   recorder[bool]     // Conn.Resumable in OnClose
	errors   recorder[string]   // types of messages that OnError has received
}

// start starts the nodes, with options: nodes=2, within=2m (sessions), grace=0 (presence), history=100, topics, queue, queue-bytes,
// slow=2 (consumers), patient (time-outs of an hour), sessions (of a user), address-sessions, user-history, drop=TOPIC,TOPIC (in OnResume), resume-takes=1s (likewise), per-user (connections), events (OnPresence), cut (off the store). NAME/2=VALUE is for node 2 alone, ends (OnSessionEnd
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
		own := maps.Clone(options)
		for option, value := range options {
			if name, ok := strings.CutSuffix(option, fmt.Sprint("/", len(w.nodes))); ok {
				own[name] = value
			}
		}
		_, n.broker.cut = own["cut"]
		n.Router = newSessionRouterKeeping(int(number(w, own["history"], 100)), n.broker, func(o *router.Options) { w.configure(n, o, own) })
		club := &router.TopicOptions{Authorize: w.authorize, AuthorizeHidden: w.authorizeHidden, Presence: true, PresenceGrace: duration(w, options["grace"], 0)}
		router.Topic(n.Router, "club/{name}", club)
		router.On(n.Router, func(*router.Context, Nothing) error { <-w.release; return nil })
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
	resume := router.ResumeOptions{Within: duration(w, options["within"], resumeWithin)}
	o.Limits.Topics = int(number(w, options["topics"], 0))
	o.Limits.QueueMessages = int(number(w, options["queue"], 0))
	o.Limits.QueueBytes = int(number(w, options["queue-bytes"], 0))
	o.SlowConsumer = router.SlowConsumerPolicy(number(w, options["slow"], 0))
	o.OnError = func(e router.ErrorReport) { n.errors.add(e.Type) }
	if _, patient := options["patient"]; patient {
		o.Timeouts = router.Timeouts{Message: time.Hour, Ping: time.Hour, Call: time.Hour}
	}
	o.Limits.SessionsPerUser = int(number(w, options["sessions"], 0))
	o.Limits.ConnsPerIP = int(number(w, options["address-sessions"], 0))
	o.Timeouts.Call = duration(w, options["call-timeout"], o.Timeouts.Call)
	o.OnClose = func(c *router.Conn, _ router.CloseError) { n.closed.add(c.Resumable()) }
	if _, ends := options["ends"]; ends {
		resume.OnSessionEnd = func(e router.SessionEnd) { n.ends.add(e.Identity.UserID + ":" + string(e.Reason)) }
	}
	if _, observe := options["observe"]; observe {
		o.OnPresence = n.events.add
	}
	o.UserHistory = router.History{Messages: int(number(w, options["user-history"], 0))}
	takes := duration(w, options["resume-takes"], 0)
	o.Limits.ConnsPerUser = int(number(w, options["per-user"], 0))
	if _, events := options["events"]; events {
		o.OnPresence = n.events.add
	}
	o.OnMessagesLost = func(_ string, messages int) { n.lost.add(messages) }
	if options["drop"] != "" || takes > 0 {
		resume.OnResume = func(_ *router.Context, s router.ResumedSession) error {
			time.Sleep(takes)
			n.resumed.add(s.Topics)
			for topic := range strings.SplitSeq(options["drop"], ",") {
				s.Drop(topic)
			}
			return nil
		}
	}
	o.Resume = resume
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

func (w *storyWorld) authorizeHidden(*router.Context, router.TopicMatch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.denied["hidden"] {
		return errors.Errorf(errors.PermissionDenied, "members must be seen")
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
func (w *storyWorld) epochOf(c *storyClient, topic string) string {
	if topic == "" {
		w.readAll(c)
		return c.log
	}
	for _, n := range w.nodes {
		if n.dead || n.broker.slow.Load() {
			continue
		}
		if _, at, err := n.ReadHistory(w.t.Context(), topic, broker.Query{}); err == nil {
			return at.Epoch
		}
	}
	require.Fail(w.t, "no epoch of "+topic, w.where)
	return ""
}

func (w *storyWorld) setDenied(topic string, denied bool) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied[topic] = denied
	return "", nil
}

// nodeOf returns the node of a client.
func (w *storyWorld) nodeOf(c *storyClient) *storyNode {
	for _, n := range w.nodes {
		if n.Conn(c.conn.ID()) != nil {
			return n
		}
	}
	require.Fail(w.t, "no connection", w.where)
	return nil
}

// codeOf returns the code of an error, as a client receives it.
func codeOf(err error) (string, error) {
	if _, limit := errors.AsType[*router.LimitExceeded](err); limit {
		return string(errors.ResourceExhausted), err
	}
	return string(errors.CodeOf(err)), err
}

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
		events, shown := n.presenceEvents(), []string(nil)
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

// presenceEvents returns what OnPresence was called with since the last call.
func (n *storyNode) presenceEvents() (all []string) {
	for _, e := range n.events.take() {
		all = append(all, signed(map[bool]string{true: "+", false: "-"}[e.Joined], e.Member)...)
	}
	return all
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
