// Package ask calls the clients of this node, and asks other nodes to call theirs or to list the connections of a user,
// through the topics of a broker. It also carries packets of others to the node of a connection.
//
// Each node subscribes to a topic of its own. A node that is asked answers there: first with the
// connections that it has, if need be with none, then with the outcomes of the calls. Nothing is
// sent again, so a node that does not answer may have received the ask.
//
// # Locks and goroutines
//
// Node.mu is acquired before the lock of a broker, for broker.Node.Nodes, and without any other lock of
// this package. No other lock is acquired under ask.mu, servedAsks.mu and questions.mu. The functions
// of Config and the methods of Client are called without locks. An ask that calls clients of this node has one
// goroutine per client, and one that sends the outcomes; they end with the calls, or when the node
// that has asked does not wait any more. A question of another node is answered on a goroutine of its
// own.
package ask

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/report"
	"github.com/penstock-go/penstock/router/observe"
)

const (
	// nodeTopicPrefix precedes the name of a node in the topic that carries packets to it. It is in
	// the name of no application's topic, because it contains a control character.
	nodeTopicPrefix = "\x00node "

	// nodeWait is how long a node may take to say which connections it has: about as long as a
	// failure takes to be noticed. Nodes that are alive, and do not answer in time, run an older
	// version, or packets were lost.
	nodeWait = 5 * time.Second

	// maxAnswerBytes bounds the answers of clients for which callers on this node wait, and which
	// they have not yet taken.
	maxAnswerBytes = 64 << 20
)

// Config is what a node needs.
type Config struct {
	Node       broker.Node
	UsersTopic string // to which all nodes subscribe
	MaxOpen    int    // asks of this node without a complete answer, and calls to its clients for other nodes

	Timeout     time.Duration // of a call
	Concurrency int           // calls to one client
	QueueBytes  int           // the longest call

	Formats       *envelope.Formats
	Elements      int  // bounds those of a reply
	RejectUnknown bool // members of replies

	Spans   *report.Tracer
	Observe func(observe.Event)

	// ByID returns the client with the ID of its connection. ByUser returns those of a user.
	ByID   func(connID string) Clients
	ByUser func(tenantID, userID string) Clients
}

// Clients are some clients of this node.
type Clients struct {
	First []Client // at most MaxListed
	Total int
}

// MaxListed bounds the connections in an answer, and those that a caller receives of all nodes.
const MaxListed = 1000

// A Conn is a connection of a client.
type Conn struct {
	ConnID      string
	NodeID      string
	IP          netip.Addr
	Subprotocol string
	OpenedAt    time.Time
}

// An Outcome is that of a call to a client, or an error of a node.
type Outcome struct {
	Node        string
	ConnID      string // "" for an error of the node
	Subprotocol string // of the codec of Message; "" for JSON
	Message     []byte // the answer of the client
	Err         error
}

// A Limit is the error for what exceeds a limit. It is never wrapped; a router has its own.
type Limit struct {
	Kind            string
	Observed, Limit int64
	RetryAfter      time.Duration
}

// Error describes the limit.
func (l *Limit) Error() string {
	return fmt.Sprintf("%s limit exceeded: %d of %d", l.Kind, l.Observed, l.Limit)
}

// Option returns the option that sets the limit, or "" if none does. Nodes do not send it to each other.
func (l *Limit) Option() string {
	switch l.Kind {
	case limitConcurrency:
		return "router.Limits.Concurrency"
	case limitQueue:
		return "router.Limits.QueueBytes"
	default:
		return ""
	}
}

// The kinds of limits of this package, as routers name them.
const (
	limitConcurrency = "in_flight"
	limitConnections = "connections"
	limitQueue       = "queue"
)

var (
	errNodesUnknown = &errors.Error{Code: errors.Unavailable, Message: "this node does not know all others at the moment"}
	errShutdown     = &errors.Error{Code: errors.Unavailable, Message: "this node is shutting down"}
	errManyAnswers  = &errors.Error{Code: errors.ResourceExhausted, Message: "too many answers wait for their callers"}
	errNoConn       = &errors.Error{Code: errors.NotFound, Message: "no node has this connection"}
)

// errNodeLeft says that a node cannot answer any more.
func errNodeLeft(node string) *errors.Error {
	return &errors.Error{Code: errors.Unavailable, Message: "the node of the client has left or failed", Err: fmt.Errorf("router: node %s has left or failed", node)}
}

// errNodeSilent says that a node has not answered in time.
func errNodeSilent(node string) *errors.Error {
	return &errors.Error{Code: errors.Unavailable, Message: "a node has not answered", Err: fmt.Errorf("router: node %s has not answered within %v", node, nodeWait)}
}

// A Node asks other nodes, and answers them. Before Init, only NodeLeft may be called.
type Node struct {
	config Config
	name   string
	hash   nodeHash // of name
	served servedAsks

	questions questions // to all nodes
	owned     questions // to one node

	bytes atomic.Int64 // of answers of clients that callers have not taken

	mu     sync.Mutex
	last   uint64          // the number of the latest ask
	open   map[uint64]*ask // without a complete answer
	closed bool            // nothing is answered any more
}

// Init sets what the node needs. It does not subscribe to its topic.
func (n *Node) Init(config Config) {
	n.config, n.name = config, config.Node.Name()
	n.hash = hashNode(n.name)
	n.questions.init(questionAsk, questionAnswer, boundsForAll)
	n.owned.init(ownedAsk, ownedAnswer, QuestionBounds{})
}

// Name returns the name of the node.
func (n *Node) Name() string { return n.name }

// Topic returns the topic whose packets Receive needs.
func (n *Node) Topic() string { return nodeTopicPrefix + n.name }

// publish sends a packet to one node.
func (n *Node) publish(node string, packet []byte) error {
	return n.config.Node.Publish(nodeTopicPrefix+node, packet)
}

// PublishToNodeOf sends a packet to the node of a connection, if that is another one which has neither left
// nor failed. It sends the packet to all nodes if connID is "", or if there may be nodes that this one
// does not know.
func (n *Node) PublishToNodeOf(connID string, packet []byte) error {
	nodes, all := n.config.Node.Nodes()
	if connID == "" || !all && !n.hash.isIn(connID) {
		return n.config.Node.Publish(n.config.UsersTopic, packet)
	}
	var failed error
	for _, node := range nodes {
		if hashNode(node).isIn(connID) {
			failed = errors.Join(failed, n.publish(node, slices.Clone(packet)))
		}
	}
	return failed
}

// Receive handles a packet that another node has published on the topic of this one.
func (n *Node) Receive(from string, packet []byte) {
	in := packetReader{rest: packet[1:]}
	switch packet[0] {
	case connAsk:
		connID := in.text()
		if a := in.readAsk(from); !in.malformed {
			n.receiveAsk(&a, n.config.ByID(connID))
		}
	case askEnd:
		if number := in.uvarint(); !in.malformed {
			n.served.abort(servedKey{from, number})
		}
	case askAnswer:
		n.receiveAnswer(from, packet[1:])
	case questionAsk:
		n.receiveQuestion(&n.questions, from, &in)
	case questionAnswer:
		n.receiveQuestionAnswer(&n.questions, from, &in)
	case ownedAsk:
		n.receiveQuestion(&n.owned, from, &in)
	case ownedAnswer:
		n.receiveQuestionAnswer(&n.owned, from, &in)
	}
}

// ReceiveUserAsk handles a packet on the topic of users that begins with UserAsk.
func (n *Node) ReceiveUserAsk(from string, packet []byte) {
	in := packetReader{rest: packet[1:]}
	tenantID, userID := in.text(), in.text()
	if a := in.readAsk(from); !in.malformed && userID != "" {
		n.receiveAsk(&a, n.config.ByUser(tenantID, userID))
	}
}

// NodeLeft ends what was asked of a node, and the calls for which it has asked.
func (n *Node) NodeLeft(node string) {
	for _, a := range n.all() {
		a.endNode(node, errNodeLeft(node))
	}
	n.served.nodeLeft(node)
	n.questions.nodeLeft(node)
	n.owned.nodeLeft(node)
}

// Close ends all asks, and rejects further ones.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	for _, a := range n.all() {
		a.endNodes(always(errShutdown), false)
	}
}

// Open returns the number of asks without a complete answer, of those of other nodes that are being
// answered, of calls to clients for these, and of the bytes that wait for callers.
func (n *Node) Open() (asked, served, calls int, size int64) {
	n.mu.Lock()
	asked = len(n.open)
	n.mu.Unlock()
	n.served.mu.Lock()
	defer n.served.mu.Unlock()
	return asked, len(n.served.open), n.served.calls, n.bytes.Load()
}

// begin adds an ask to the other nodes that choose accepts, and returns them. all is false if there
// may be more nodes. If one of them leaves after that, its part of the ask ends.
func (n *Node) begin(details bool, choose func(node string) bool) (a *ask, nodes []string, all bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, nil, false, errShutdown
	}
	if open := len(n.open) + 1; open > n.config.MaxOpen {
		return nil, nil, false, &Limit{Kind: limitConcurrency, Observed: int64(open), Limit: int64(n.config.MaxOpen)}
	}
	n.last++
	a = &ask{node: n, number: n.last, details: details, wake: make(chan struct{}, 1), nodes: map[string]*askedNode{}}
	others, all := n.config.Node.Nodes()
	for _, node := range others {
		if choose(node) {
			nodes = append(nodes, node)
			a.nodes[node] = &askedNode{}
		}
	}
	if n.open == nil {
		n.open = map[uint64]*ask{}
	}
	n.open[a.number] = a
	return a, nodes, all, nil
}

// find returns an ask, or nil if its caller does not wait any more.
func (n *Node) find(number uint64) *ask {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[number]
}

// all returns the open asks.
func (n *Node) all() []*ask {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*ask, 0, len(n.open))
	for _, a := range n.open {
		all = append(all, a)
	}
	return all
}

// A Listing has the connections of a user.
type Listing struct {
	Conns  []Conn   // at most MaxListed, the oldest first
	Total  int      // on the nodes that have answered
	Silent []string // nodes that have not answered
}

// ListUser lists the connections of a user on all nodes. After an error, the listing may be incomplete.
func (n *Node) ListUser(ctx context.Context, tenantID, userID string) (found Listing, err error) {
	a, nodes, all, err := n.begin(true, everyNode)
	if err != nil {
		return found, err
	}
	defer a.end()
	if len(nodes) > 0 {
		a.askAll(nodes, tenantID, userID, 0, nil, nil)
	}
	own := n.config.ByUser(tenantID, userID)
	a.listOwn(connsOf(own.First), own.Total)
	for o := range a.awaitOutcomes(ctx) {
		found.Silent = append(found.Silent, o.Node)
		err = o.Err
	}
	a.mu.Lock()
	found.Conns, found.Total = a.conns, a.total
	a.mu.Unlock()
	slices.SortFunc(found.Conns, func(a, b Conn) int {
		return cmp.Or(a.OpenedAt.Compare(b.OpenedAt), cmp.Compare(a.ConnID, b.ConnID))
	})
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case len(found.Silent) > 1:
		err = &errors.Error{
			Code: errors.Unavailable, Message: "some nodes have not answered",
			Err: fmt.Errorf("router: nodes %s have not answered: %w", strings.Join(found.Silent, ", "), err),
		}
	case err == nil && !all:
		err = errNodesUnknown
	}
	return found, err
}

// askAll asks all other nodes to call the clients of a user, or to list them if m is nil. failed is
// why m cannot be encoded, or nil.
func (a *ask) askAll(nodes []string, tenantID, userID string, timeout time.Duration, m *Message, failed error) {
	if failed == nil {
		packet := appendString(appendString([]byte{UserAsk}, tenantID), userID)
		failed = a.node.config.Node.Publish(a.node.config.UsersTopic, appendAsk(packet, a.number, timeout, m))
	}
	if failed == nil {
		return
	}
	for _, node := range nodes {
		a.endNode(node, failed)
	}
}
