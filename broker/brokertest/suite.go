package brokertest

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Cluster connects the nodes of a case.
type Cluster struct {
	// Connect adds a node. Nodes may share one broker, or have one each, as in separate
	// processes.
	Connect func(broker.Callbacks) broker.Node

	// Kill ends a node as a crash does, without Close. If it is nil, the case calls Close.
	Kill func(broker.Node)

	// Faults are injected one after the other. A broker without a network has none.
	Faults []Fault

	// Timeout is how long a case waits for an expected event before it fails.
	Timeout time.Duration

	// QuietPeriod is how long a case waits for unexpected packets.
	QuietPeriod time.Duration
}

// A Case is one rule of the contract.
type Case struct {
	Name  string
	Rule  string
	Check func(Cluster) error // returns how a broker broke the rule
}

// Run fails the test if the broker breaks the rule. Cases use the same topics: cases that share
// a server must not run in parallel.
func (c Case) Run(t *testing.T, cluster Cluster) {
	t.Helper()
	if err := c.Check(cluster); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// Cases returns the rules of the contract.
func Cases() []Case {
	return []Case{
		{"packet reaches all subscribers", "A packet reaches all other nodes that subscribe to its topic, whole and once.", packetReachesSubscribers},
		{"publisher is excluded", "A node does not receive its own packets.", publisherIsExcluded},
		{"topics are separate", "A node receives no packets of topics that it does not subscribe to, whatever their names contain.", topicsAreSeparate},
		{"unsubscribe", "After Unsubscribe, a node receives no more packets of the topic.", unsubscribeEndsDelivery},
		{"resubscribe", "A node may subscribe again to a topic that it unsubscribed from.", resubscribe},
		{"subscribed means delivered", "Everything published after Subscribed is delivered.", subscribedMeansDelivered},
		{"order", "Packets of one node on one topic are delivered one at a time, in the order of publication.", packetsAreOrdered},
		{"concurrent publishers", "Nodes and goroutines may publish concurrently, and no packet is lost or duplicated.", concurrentPublishers},
		{"packet sizes", "A packet may be empty, and as large as a message.", packetSizes},
		{"close", "Close of a node calls NodeLeft on the others, with the name that its packets had.", closeIsReported},
		{"crash", "NodeLeft is called for a node that crashes.", crashIsReported},
		{"nodes", "Every node knows the names of all others, which their packets have, and of none that has closed or crashed.", nodesAreKnown},
		{"presence", "A member is reported to the other nodes that track its topic, earlier or later, and to no others.", presenceReachesTrackingNodes},
		{"presence changes", "Joins with other data, leaves, Untrack and Track are reported, and joins and leaves of a member alternate.", presenceFollowsChanges},
		{"presence of a node that ends", "The members of a node that closes or crashes leave.", presenceEndsWithNode},
		{"presence converges", "After a fault, all nodes report the same members.", presenceConverges},
		{"close sends everything", "Close sends all packets for which Publish has returned nil.", closeSendsEverything},
		{"nothing follows close", "After Close, no function of the handler is called.", nothingFollowsClose},
		{"loss is reported", "Whatever happens, each packet is delivered once and in order, or its loss is reported after it was published; a node that crashed has left.", lossIsReported},
		{"closed node", "The methods of a closed node do nothing; Close may be called again.", closedNodeDoesNothing},
	}
}
