package inspect

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A node is what the inspector shows of a node.
type node struct {
	Node           string    `json:"node"` // "" without a broker
	Version        string    `json:"version"`
	Go             string    `json:"go"`
	StartedAt      time.Time `json:"startedAt"` // of the inspector
	Healthy        bool      `json:"healthy"`   // false once Shutdown has begun
	Conns          int       `json:"conns"`
	QueuedMessages int       `json:"queuedMessages"`
	QueuedBytes    int       `json:"queuedBytes"`
	Goroutines     int       `json:"goroutines"`
	Refusals       int64     `json:"refusals"` // that were reported or sampled away since StartedAt
	Asker          bool      `json:"asker"`    // the node that has received the request
}

// version returns the version of the program.
var version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path + " " + info.Main.Version
	}
	return ""
})

func (i *Inspector) localNode(context.Context, struct{}) (node, error) {
	stats := i.router.Stats()
	return node{
		Node: i.router.NodeID(), Version: version(), Go: runtime.Version(), StartedAt: i.started, Healthy: i.router.Healthy(),
		Conns: stats.Conns, QueuedMessages: stats.QueuedMessages, QueuedBytes: stats.QueuedBytes,
		Goroutines: runtime.NumGoroutine(), Refusals: i.refusals.count(),
	}, nil
}

// listNodes returns all nodes.
func (i *Inspector) listNodes(ctx context.Context, _ struct{}) (any, error) {
	answers, states, err := gather[node](ctx, i, askNodes, struct{}{})
	if err != nil {
		return nil, err
	}
	nodes := []node{}
	for _, a := range answers {
		a.Result.Asker = a.Node == i.router.NodeID()
		nodes = append(nodes, a.Result)
	}
	return struct {
		Nodes nodeStates `json:"nodes"`
		Rows  []node     `json:"rows"`
	}{states, nodes}, nil
}
