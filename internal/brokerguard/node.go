// Package brokerguard keeps the panics of a broker, which may be a program's own, from the router
// that uses it: a method that panics is reported, and returns an error if it can. It has no state.
package brokerguard

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Report reports that a method has panicked, such as "Broker.Publish", and returns the cause of
// the method's error. It may be called under locks of the caller.
type Report func(method string, v any) (cause error)

// recover reports a panic. It must be deferred.
func (r Report) recover(method string) {
	if v := recover(); v != nil {
		_ = r(method, v) // the method returns no error for it
	}
}

// recoverAs is recover that sets an error with a code.
func (r Report) recoverAs(method string, code errors.Code, err *error) {
	if v := recover(); v != nil {
		*err = &errors.Error{Code: code, Err: r(method, v)}
	}
}

// Node returns a node whose panics are reported.
func Node(n broker.Node, r Report) broker.Node { return guardedNode{n, r} }

type guardedNode struct {
	node   broker.Node
	report Report
}

// Name calls the broker, when the program starts.
func (g guardedNode) Name() string { return g.node.Name() }

// Nodes calls the broker. After a panic it returns that there may be other nodes.
func (g guardedNode) Nodes() (others []string, all bool) {
	defer g.report.recover("Broker.Nodes")
	return g.node.Nodes()
}

func (g guardedNode) Subscribe(topic string) {
	defer g.report.recover("Broker.Subscribe")
	g.node.Subscribe(topic)
}

func (g guardedNode) Unsubscribe(topic string) {
	defer g.report.recover("Broker.Unsubscribe")
	g.node.Unsubscribe(topic)
}

// Publish calls the broker. After a panic it returns nil: this node's subscribers have received the
// message, and the panic is reported.
func (g guardedNode) Publish(topic string, packet []byte) error {
	defer g.report.recover("Broker.Publish")
	return g.node.Publish(topic, packet)
}

func (g guardedNode) Join(topic, id, data string) {
	defer g.report.recover("Broker.Join")
	g.node.Join(topic, id, data)
}

func (g guardedNode) Leave(topic, id string) {
	defer g.report.recover("Broker.Leave")
	g.node.Leave(topic, id)
}

func (g guardedNode) Track(topic string) {
	defer g.report.recover("Broker.Track")
	g.node.Track(topic)
}

func (g guardedNode) Untrack(topic string) {
	defer g.report.recover("Broker.Untrack")
	g.node.Untrack(topic)
}

func (g guardedNode) Close(ctx context.Context) error {
	defer g.report.recover("Broker.Close")
	return g.node.Close(ctx)
}
