package ask

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

// A publishingNode records the topics on which it publishes.
type publishingNode struct {
	broker.Node

	all    bool
	topics []string
}

func (*publishingNode) Name() string { return "own" }

func (n *publishingNode) Nodes() (others []string, all bool) { return []string{"one", "two"}, n.all }

func (n *publishingNode) Publish(topic string, _ []byte) error {
	n.topics = append(n.topics, topic)
	return nil
}

func TestPublishToNodeOf_ReachesTheNodeOfTheConnection(t *testing.T) {
	const users = "users"
	connOf := func(node string) string {
		of := Node{hash: hashNode(node)}
		return of.NewConnID()
	}
	for _, c := range []struct {
		name   string
		connID string
		all    bool
		want   []string
	}{
		{"another node", connOf("two"), true, []string{nodeTopicPrefix + "two"}},
		{"a node that has left", connOf("three"), true, nil},
		{"this node, which knows the connection no more", connOf("own"), true, nil},
		{"any node", "", true, []string{users}},
		{"a node that may be unknown", connOf("three"), false, []string{users}},
	} {
		var n Node
		node := &publishingNode{all: c.all}
		n.Init(Config{Node: node, UsersTopic: users})
		require.NoError(t, n.PublishToNodeOf(c.connID, []byte("packet")))
		assert.Equal(t, c.want, node.topics, c.name)
	}
}
