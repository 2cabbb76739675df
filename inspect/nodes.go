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

	Series *seriesPart `json:"series,omitempty"` // if it was asked for
}

// A nodesQuery asks for nodes.
type nodesQuery struct {
	Series bool             `json:"series,omitempty"` // what they have done in the last 15 minutes
	After  map[string]int64 `json:"after,omitempty"`  // numbers of the samples that were read last, by node
}

// version returns the version of the program.
var version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path + " " + info.Main.Version
	}
	return ""
})

func (i *Inspector) localNode(_ context.Context, q nodesQuery) (node, error) {
	stats := i.router.Stats()
	n := node{
		Node: i.router.NodeID(), Version: version(), Go: runtime.Version(), StartedAt: i.started, Healthy: i.router.Healthy(),
		Conns: stats.Conns, QueuedMessages: stats.QueuedMessages, QueuedBytes: stats.QueuedBytes,
		Goroutines: runtime.NumGoroutine(), Refusals: i.refusals.count(),
	}
	if q.Series {
		n.Series = i.series.after(q.After[n.Node])
	}
	return n, nil
}

// listNodes returns all nodes.
func (i *Inspector) listNodes(ctx context.Context, q nodesQuery) (any, error) {
	answers, states, err := gather[node](ctx, i, askNodes, q)
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
