package docs_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

const micro = 1e-6

// Rates and counts of the model. The connections of a room are spread over the nodes at random.

func conns(m *model) float64 { return m.number("connections per node") }

func calls(m *model) float64 { return conns(m) * m.number("calls of a connection") }

// publications returns those of one node per second.
func publications(m *model) float64 {
	return conns(m) * m.number("publications of a connection in its room")
}

// deliveries returns those to the connections of one node per second.
func deliveries(m *model) float64 { return publications(m) * m.number("connections of a room") }

func pings(m *model) float64 { return conns(m) / m.number("`Timeouts.Ping`") }

// reached returns how many nodes have a connection of a room.
func reached(m *model, nodes float64) float64 {
	return nodes * (1 - math.Pow(1-1/nodes, m.number("connections of a room")))
}

func ownMembers(m *model) float64 { return conns(m) * m.number("share of connections with presence") }

// remoteMembers returns how many members of other nodes a node knows.
func remoteMembers(m *model, nodes float64) float64 {
	return ownMembers(m) * (reached(m, nodes) - 1)
}

func opened(m *model) float64 { return conns(m) / m.number("lifetime of a connection") }

func sessionCount(m *model) float64 {
	return conns(m) * m.number("share of connections with a session")
}

// sessionWrites returns those of one node per second: the record is stored again after a quarter to a
// third of Within, which is 7/24 on average, and when the session begins and ends.
func sessionWrites(m *model) float64 {
	return sessionCount(m)*24/7/m.number("`Resume.Within`") + 2*opened(m)*m.number("share of connections with a session")
}

func presenceChanges(m *model) float64 {
	return 2 * opened(m) * m.number("share of connections with presence")
}

// heartbeats returns the messages per second to Redis and from Redis: each node publishes one
// heartbeat, which all nodes receive, and four probes, which it receives itself.
func heartbeats(nodes float64) (in, out float64) { return 5 * nodes, nodes*nodes + 4*nodes }

// heartbeatCPU returns the CPU seconds per second of Redis.
func heartbeatCPU(m *model, nodes float64) float64 {
	in, out := heartbeats(nodes)
	return (in*publicationAlone(m, 0) + out*m.number("copy for a node, alone")) * micro
}

// frame returns the bytes of a message on the network.
func frame(m *model) float64 { return m.number("message") + m.number("headers of a message") }

// What the basis of a row says.
const (
	mixed    = "from measured constants"
	computed = "computed"
)

// liveMemory are the rows of what the garbage collector manages.
var liveMemory = []string{"memory: connections", "memory: subscriptions to rooms", "memory: sessions", "memory: own members", "memory: members of other nodes"}

func nodeRows() []modelRow { return slices.Concat(nodeMemory(), nodeCPU(), nodeNetwork()) }

func nodeMemory() []modelRow {
	return []modelRow{
		{liveMemory[0], "connections × connection", "measured with 18,000", func(m *model, _ float64) float64 {
			return conns(m) * m.number("connection, process")
		}, megabytes},
		{liveMemory[1], "connections × subscription", mixed, func(m *model, _ float64) float64 {
			return conns(m) * m.number("subscription")
		}, megabytes},
		{liveMemory[2], "sessions × session", mixed, func(m *model, _ float64) float64 {
			return sessionCount(m) * m.number("session, process")
		}, megabytes},
		{liveMemory[3], "members × own member", mixed, func(m *model, _ float64) float64 {
			return ownMembers(m) * m.number("member, own node")
		}, megabytes},
		{liveMemory[4], "own members × (nodes of a room − 1) × member on another node", mixed, func(m *model, n float64) float64 {
			return remoteMembers(m, n) * m.number("member, other node")
		}, megabytes},
		{"memory: garbage", "as much again as the rows above, with GOGC=100", computed, sumOf(nodeRows, liveMemory...), megabytes},
		{"memory: kernel", "connections × connection in the kernel", mixed, func(m *model, _ float64) float64 {
			return conns(m) * m.number("connection, kernel")
		}, megabytes},
		{"memory: logs of users", "users × log, if each user has one connection, with `UserHistory`; not in the sums", mixed, func(m *model, _ float64) float64 {
			return conns(m) * m.number("log of a user")
		}, megabytes},
		{"**memory**", "sum", computed, sumOf(nodeRows, append(liveMemory, "memory: garbage", "memory: kernel")...), megabytes},
	}
}

func nodeCPU() []modelRow {
	rows := []modelRow{
		{"CPU: calls", "calls/s × (call and reply + decision on Redis, node)", mixed, func(m *model, _ float64) float64 {
			return calls(m) * (m.number("call and reply") + m.number("decision on Redis, node")) * micro
		}, cores},
		{"CPU: deliveries", "deliveries/s × delivery", mixed, func(m *model, _ float64) float64 {
			return deliveries(m) * m.number("delivery") * micro
		}, cores},
		{"CPU: publications through Redis", "publications/s of a node × nodes of a room × publication received", mixed, func(m *model, n float64) float64 {
			return publications(m) * reached(m, n) * m.number("publication received") * micro
		}, cores},
		{"CPU: pings", "connections ÷ `Timeouts.Ping` × ping and pong", mixed, func(m *model, _ float64) float64 {
			return pings(m) * m.number("ping and pong") * micro
		}, cores},
		{"CPU: sessions", "session writes/s × decision on Redis, node", computed, func(m *model, _ float64) float64 {
			return sessionWrites(m) * m.number("decision on Redis, node") * micro
		}, cores},
		{"CPU: presence", "changes/s of a node × nodes of a room × change on another node", mixed, func(m *model, n float64) float64 {
			return presenceChanges(m) * reached(m, n) * m.number("change on another node") * micro
		}, cores},
		{"CPU: heartbeats", "nodes × publication received", mixed, func(m *model, n float64) float64 {
			return n * m.number("publication received") * micro
		}, cores},
		{"CPU: connections", "connections ÷ lifetime × (handshake + close)", mixed, func(m *model, _ float64) float64 {
			return opened(m) * (m.number("handshake") + m.number("close")) * micro
		}, cores},
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.name
	}
	return append(rows,
		modelRow{"**CPU**", "sum", computed, sumOf(nodeRows, names...), cores},
		modelRow{"CPU for TLS in the node, in addition", "connections ÷ lifetime × (handshake with TLS − handshake); encryption is not included", mixed, func(m *model, _ float64) float64 {
			return opened(m) * (m.number("handshake with TLS") - m.number("handshake")) * micro
		}, cores},
		modelRow{"CPU of a message to all connections", "connections × delivery", "measured with 18,000", func(m *model, _ float64) float64 {
			return conns(m) * m.number("delivery") * micro
		}, seconds},
	)
}

func nodeNetwork() []modelRow {
	return []modelRow{
		{"network to clients", "(calls/s + deliveries/s) × message with headers", computed, func(m *model, _ float64) float64 {
			return (calls(m) + deliveries(m)) * frame(m)
		}, megabits},
		{"network from clients", "calls/s × message with headers + (deliveries/s + pings/s) × headers", computed, func(m *model, _ float64) float64 {
			return calls(m)*frame(m) + (deliveries(m)+pings(m))*m.number("headers of a message")
		}, megabits},
		{"network from and to Redis", "that of Redis, below, ÷ nodes", mixed, func(m *model, n float64) float64 {
			return sumOf(redisRows, "**network from Redis**", "**network to Redis**")(m, n) / n
		}, megabits},
	}
}

// redisRows returns the rows of all Redis servers together.
func redisRows() []modelRow { return slices.Concat(redisCPU(), redisMemory(), redisNetwork()) }

func redisCPU() []modelRow {
	const decisions, records, inBursts, eachAlone, presence, beats = "CPU: decisions of limiters", "CPU: session records",
		"CPU: publications, in bursts", "CPU: publications, alone", "CPU: presence", "CPU: heartbeats"
	return []modelRow{
		{decisions, "nodes × calls/s × decision", mixed, func(m *model, n float64) float64 {
			return n * calls(m) * m.number("decision on Redis") * micro
		}, cores},
		{records, "nodes × session writes/s × write", mixed, func(m *model, n float64) float64 {
			return n * sessionWrites(m) * m.number("session write") * micro
		}, cores},
		{inBursts, "nodes × publications/s × (publication + nodes of a room × copy), in bursts", mixed, func(m *model, n float64) float64 {
			return n * publications(m) * publicationInBursts(m, reached(m, n)) * micro
		}, cores},
		{eachAlone, "the same, each publication alone", mixed, func(m *model, n float64) float64 {
			return n * publications(m) * publicationAlone(m, reached(m, n)) * micro
		}, cores},
		{presence, "nodes × changes/s × (publication + nodes of a room × copy), alone", computed, func(m *model, n float64) float64 {
			return n * presenceChanges(m) * publicationAlone(m, reached(m, n)) * micro
		}, cores},
		{beats, "5 × nodes × publication + (nodes² + 4 × nodes) × copy, alone", mixed, heartbeatCPU, cores},
		{"CPU: comparisons", "nodes × rooms of a node ÷ interval × comparison; not in the sums", mixed, func(m *model, n float64) float64 {
			rooms := conns(m) * reached(m, n) / m.number("connections of a room")
			return n * rooms / m.number("interval of comparisons") * m.number("comparison of a topic") * micro
		}, cores},
		{"CPU: comparisons of logs of users", "nodes × users of a node ÷ interval × comparison, with `UserHistory`; not in the sums", mixed, func(m *model, n float64) float64 {
			return n * conns(m) / m.number("interval of comparisons") * m.number("comparison of a topic") * micro
		}, cores},
		{"**CPU, at least**", "sum, with publications in bursts", computed, sumOf(redisRows, decisions, records, inBursts, presence, beats), cores},
		{"**CPU, at most**", "sum, with publications alone", computed, sumOf(redisRows, decisions, records, eachAlone, presence, beats), cores},
		{"masters of a Cluster, at least", "CPU, at least ÷ 0.7 of a core, rounded up", computed, masters("**CPU, at least**"), plain},
		{"masters of a Cluster, at most", "CPU, at most ÷ 0.7 of a core, rounded up", computed, masters("**CPU, at most**"), plain},
	}
}

// masters returns a function for the number of Redis servers that share the CPU time of a row.
func masters(row string) func(m *model, nodes float64) float64 {
	return func(m *model, n float64) float64 { return math.Ceil(sumOf(redisRows, row)(m, n) / 0.7) }
}

// publicationAlone returns the CPU time of a publication that nodes receive, in µs, if Redis writes each
// copy separately.
func publicationAlone(m *model, nodes float64) float64 {
	return m.number("publication, alone") + nodes*m.number("copy for a node, alone")
}

// publicationInBursts is publicationAlone if Redis writes many copies at a time.
func publicationInBursts(m *model, nodes float64) float64 {
	return m.number("publication, in bursts") + nodes*m.number("copy for a node, in bursts")
}

func redisMemory() []modelRow {
	const buckets, records, nodes = "memory: buckets", "memory: session records", "memory: connections of nodes"
	return []modelRow{
		{buckets, "nodes × connections × bucket, if all are in use", mixed, func(m *model, n float64) float64 {
			return n * conns(m) * m.number("bucket")
		}, megabytes},
		{records, "nodes × sessions × record", mixed, func(m *model, n float64) float64 {
			return n * sessionCount(m) * m.number("session record")
		}, megabytes},
		{nodes, "nodes × memory of a node's connections", mixed, func(m *model, n float64) float64 {
			return n * m.number("node, memory on Redis")
		}, megabytes},
		{"**memory**", "sum, without [histories](../guides/recovery.md#redis)", computed, sumOf(redisRows, buckets, records, nodes), megabytes},
	}
}

func redisNetwork() []modelRow {
	return []modelRow{
		{"**network from Redis**", "publications/s × nodes of a room × copy + heartbeats + half of the bytes of decisions + answers to session writes", mixed, func(m *model, n float64) float64 {
			_, beats := heartbeats(n)
			return n*publications(m)*reached(m, n)*m.number("copy, bytes") + beats*m.number("heartbeat, bytes") +
				n*calls(m)*m.number("decision, bytes")/2 + n*sessionWrites(m)*m.number("answer to a session write, bytes")
		}, megabits},
		{"**network to Redis**", "publications/s × copy + heartbeats + half of the bytes of decisions + session writes", mixed, func(m *model, n float64) float64 {
			beats, _ := heartbeats(n)
			return n*publications(m)*m.number("copy, bytes") + beats*m.number("heartbeat, bytes") +
				n*calls(m)*m.number("decision, bytes")/2 + n*sessionWrites(m)*m.number("session write, bytes")
		}, megabits},
	}
}

// failureRows returns the rows of a node that fails: its connections open again on the others.
func failureRows() []modelRow {
	share := func(m *model, n float64) float64 { return conns(m) / (n - 1) }
	return []modelRow{
		{"connections for each other node", "connections ÷ (nodes − 1)", computed, share, plain},
		{"first attempts for each other node", "the same ÷ first delay of a client", computed, func(m *model, n float64) float64 {
			return share(m, n) / m.number("first delay of a client")
		}, perSecond},
		{"CPU of each other node", "connections for each × handshake", mixed, func(m *model, n float64) float64 {
			return share(m, n) * m.number("handshake") * micro
		}, seconds},
		{"CPU of each other node, with TLS", "connections for each × handshake with TLS", mixed, func(m *model, n float64) float64 {
			return share(m, n) * m.number("handshake with TLS") * micro
		}, seconds},
		{"duration with a limit of attempts", "connections for each ÷ limit of attempts", computed, func(m *model, n float64) float64 {
			return share(m, n) / m.number("limit of attempts")
		}, seconds},
		{"CPU of Redis for sessions", "2 × sessions of a node × write", computed, func(m *model, n float64) float64 {
			return share(m, n) * (n - 1) * m.number("share of connections with a session") * 2 * m.number("session write") * micro
		}, seconds},
		{"CPU of Redis for members that join again", "members × (publication + nodes of a room × copy), alone", computed, func(m *model, n float64) float64 {
			return ownMembers(m) * publicationAlone(m, reached(m, n-1)) * micro
		}, seconds},
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
