package docs_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
)

// This file has what the model says of a whole cluster: the table for readers, PostgreSQL, checks and bounds.

// A size is a number of connections, on nodes that are as full as they may be.
type size struct {
	name  string
	conns float64
}

func clusterSizes() []size {
	return []size{{"10,000", 1e4}, {"100,000", 1e5}, {"1 million", 1e6}, {"10 million", 1e7}}
}

// minNodes is for a node that fails.
const minNodes = 2

// at returns the model for a size, and the number of nodes.
func (m *model) at(s size) (sized *model, nodes float64) {
	nodes = max(minNodes, math.Ceil(s.conns/conns(m)))
	sized = &model{m.t, maps.Clone(m.numbers)}
	sized.numbers["connections per node"] = s.conns / nodes
	return sized, nodes
}

// sizesTable is the first table of the document.
func sizesTable(m *model) string {
	var b strings.Builder
	b.WriteString("| connections | nodes | memory, CPU of a node | Redis: CPU | Redis: network, memory | or PostgreSQL: CPU | what breaks first |\n")
	b.WriteString("| ---: | ---: | --- | --- | --- | --- | --- |\n")
	for _, s := range clusterSizes() {
		sized, n := m.at(s)
		node := func(row string) float64 { return sumOf(nodeRows, row)(sized, n) }
		redis := func(rows ...string) float64 { return sumOf(redisRows, rows...)(sized, n) }
		fmt.Fprintf(&b, "| %s | %s | %s, %s | %s to %s | %s, %s | %s | %s |\n", s.name, plain(n), megabytes(node("**memory**")), cores(node("**CPU**")),
			plain(redis("**CPU, at least**")), cores(redis("**CPU, at most**")),
			megabytesPerSecond(redis("**network from Redis**", "**network to Redis**")), megabytes(redis("**memory**")), postgresText(sized, n), breaksFirst(sized, n))
	}
	return b.String()
}

// assumptionsText says in words what the tables of the document assume.
func assumptionsText(m *model) string {
	publications := 60 * m.number("publications of a connection in its room")
	return fmt.Sprintf("Each connection sends %s calls per minute, which a limiter in the store admits, and receives %s messages per minute from a\n"+
		"room of %s connections on any nodes; %s %% of the connections are in rooms with presence. All have a session, and last for %s\n"+
		"minutes. A message has %s bytes. A node has at most %s connections, and there are at least %d nodes.\n",
		plain(60*m.number("calls of a connection")), plain(publications*m.number("connections of a room")), plain(m.number("connections of a room")),
		plain(100*m.number("share of connections with presence")), plain(m.number("lifetime of a connection")/60), plain(m.number("message")), plain(conns(m)), minNodes)
}

// mostPostgresCores is what one server has at most, in a row of the table.
const mostPostgresCores = 16

func postgresText(m *model, nodes float64) string {
	if used := postgresCPU(m, nodes); used <= mostPostgresCores {
		return cores(used)
	}
	return "too much"
}

// postgresCPU returns the cores for decisions, session records and publications. That of copies and heartbeats was
// not measured.
func postgresCPU(m *model, nodes float64) float64 {
	decision := 2 / m.number("decisions of PostgreSQL")
	write := m.number("write of PostgreSQL") * micro
	return nodes * (calls(m)*decision + (sessionWrites(m)+publications(m))*write)
}

// breaksFirst says what the cluster of a size must have, or loses first.
func breaksFirst(m *model, nodes float64) string {
	servers := masters("**CPU, at most**")(m, nodes)
	_, copies := heartbeats(nodes)
	switch {
	case nodes == minNodes && servers <= 1:
		return "the other node, when one fails: it needs room for all clients"
	case copies*m.number("copy for a node, alone")*micro > 0.5:
		return "the channel of heartbeats, which one server carries"
	default:
		return fmt.Sprintf("the CPU of Redis: %s masters of a Cluster, for decisions and sessions", plain(servers))
	}
}

// A check is a product of the model that is also measured.
type check struct {
	name              string
	measured, modeled float64
	unit              string
}

func checks(m *model) []check {
	_, copies := heartbeats(100)
	return []check{
		{"10 nodes, CPU of Redis", m.number("heartbeats of 10 nodes"), heartbeatCPU(m, 10) * 1000, "ms/s"},
		{"100 nodes, CPU of Redis", m.number("heartbeats of 100 nodes"), heartbeatCPU(m, 100) * 1000, "ms/s"},
		{"100 nodes, network from Redis", m.number("heartbeats of 100 nodes, bytes"), copies * m.number("heartbeat, bytes") / 1000, "kB/s"},
	}
}

func checksTable(m *model) string {
	var b strings.Builder
	b.WriteString("| heartbeats of | measured | model |\n| --- | ---: | ---: |\n")
	for _, c := range checks(m) {
		fmt.Fprintf(&b, "| %s | %s %s | %s %s |\n", c.name, plain(c.measured), c.unit, plain(c.modeled), c.unit)
	}
	return b.String()
}

// boundsTable lists where the model breaks.
func boundsTable(m *model) string {
	var b strings.Builder
	b.WriteString("| bound | at | formula |\n| --- | --- | --- |\n")
	row := func(bound, at, formula string) { fmt.Fprintf(&b, "| %s | %s | %s |\n", bound, at, formula) }
	row("heartbeats and members in them fill half of 10 Gbit/s of Redis", plain(heartbeatNodes(m))+" nodes", "the row of heartbeats, solved for nodes")
	row("heartbeats take half of a core of Redis", plain(math.Sqrt(0.5/micro/m.number("copy for a node, alone")))+" nodes",
		"√(0.5 s ÷ copy for a node, alone)")
	row("one topic on 100 nodes, each publication alone", plain(1/micro/publicationAlone(m, 100))+" publications/s", "1 s ÷ (publication + 100 × copy)")
	row("one topic on 100 nodes, publications in bursts", plain(1/micro/publicationInBursts(m, 100))+" publications/s", "1 s ÷ (publication + 100 × copy)")
	row("decisions of limiters on one core of Redis", plain(1/micro/m.number("decision on Redis"))+"/s", "1 s ÷ decision")
	row("sessions on one core of Redis", plain(1/micro/m.number("session write")*m.number("`Resume.Within`")*7/24), "`Within` × 7 ÷ 24 ÷ write")
	row("handshakes on one core of a node", plain(1/micro/m.number("handshake"))+"/s, with TLS "+
		plain(1/micro/m.number("handshake with TLS"))+"/s", "1 s ÷ handshake")
	return b.String()
}

// heartbeatNodes returns with how many nodes heartbeats fill half of a network of 10 Gbit/s.
func heartbeatNodes(m *model) (nodes float64) {
	for nodes = 2; heartbeatBytes(m, nodes) < 10e9/8/2; nodes++ {
	}
	return nodes
}
