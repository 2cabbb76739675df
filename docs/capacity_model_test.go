package docs_test

import (
	"math"
	"slices"
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

// resumed returns how many sessions of one node move to it per second: each connection but the first of a
// client resumes one, on another node.
func resumed(m *model) float64 { return opened(m) * m.number("share of connections with a session") }

// followed returns how many topics a node begins to follow per second, because it has had no connection of
// the room.
func followed(m *model, nodes float64) float64 {
	return presenceChanges(m) / 2 * math.Pow(1-1/nodes, m.number("connections of a room")-1)
}

// listedBytes returns the bytes about members in a heartbeat: rooms that have changed within a window, and
// others in turn. In clusters of more than 17 nodes, both become fewer; see package internal/cluster/presence.
func listedBytes(m *model, nodes float64) float64 {
	share := min(1, 16/(nodes-1))
	changed := presenceChanges(m) * max(3, 15*share) * m.number("room in a heartbeat")
	return min(4096, changed) + 512*share
}

// heartbeatBytes returns the bytes per second of the copies of all heartbeats.
func heartbeatBytes(m *model, nodes float64) float64 {
	_, copies := heartbeats(nodes)
	return copies*m.number("heartbeat, bytes") + nodes*nodes*listedBytes(m, nodes)
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

// liveMemory are the rows of what the garbage collector manages.
var liveMemory = []string{"memory: connections", "memory: subscriptions to rooms", "memory: sessions", "memory: own members", "memory: members of other nodes"}

func nodeRows() []modelRow { return slices.Concat(nodeMemory(), nodeCPU(), nodeNetwork()) }

func nodeMemory() []modelRow {
	return []modelRow{
		{liveMemory[0], "connections × connection", func(m *model, _ float64) float64 {
			return conns(m) * m.number("connection, process")
		}, megabytes},
		{liveMemory[1], "connections × subscription", func(m *model, _ float64) float64 {
			return conns(m) * m.number("subscription")
		}, megabytes},
		{liveMemory[2], "sessions × session", func(m *model, _ float64) float64 {
			return sessionCount(m) * m.number("session, process")
		}, megabytes},
		{liveMemory[3], "members × own member", func(m *model, _ float64) float64 {
			return ownMembers(m) * m.number("member, own node")
		}, megabytes},
		{liveMemory[4], "own members × (nodes of a room − 1) × member on another node", func(m *model, n float64) float64 {
			return remoteMembers(m, n) * m.number("member, other node")
		}, megabytes},
		{"memory: garbage", "as much again as the rows above, with GOGC=100", sumOf(nodeRows, liveMemory...), megabytes},
		{"memory: kernel", "connections × connection in the kernel", func(m *model, _ float64) float64 {
			return conns(m) * m.number("connection, kernel")
		}, megabytes},
		{"memory: logs of users", "users × log, if each user has one connection, with `UserHistory`; not in the sums", func(m *model, _ float64) float64 {
			return conns(m) * m.number("log of a user")
		}, megabytes},
		{"**memory**", "sum", sumOf(nodeRows, append(liveMemory, "memory: garbage", "memory: kernel")...), megabytes},
	}
}

func nodeCPU() []modelRow {
	rows := []modelRow{
		{"CPU: calls", "calls/s × (call and reply + decision on Redis, node)", func(m *model, _ float64) float64 {
			return calls(m) * (m.number("call and reply") + m.number("decision on Redis, node")) * micro
		}, cores},
		{"CPU: deliveries", "deliveries/s × delivery", func(m *model, _ float64) float64 {
			return deliveries(m) * m.number("delivery") * micro
		}, cores},
		{"CPU: publications through Redis", "publications/s of a node × nodes of a room × publication received", func(m *model, n float64) float64 {
			return publications(m) * reached(m, n) * m.number("publication received") * micro
		}, cores},
		{"CPU: pings", "connections ÷ `Timeouts.Ping` × ping and pong", func(m *model, _ float64) float64 {
			return pings(m) * m.number("ping and pong") * micro
		}, cores},
		{"CPU: sessions", "session writes/s × decision on Redis, node", func(m *model, _ float64) float64 {
			return sessionWrites(m) * m.number("decision on Redis, node") * micro
		}, cores},
		{"CPU: presence", "changes/s of a node × nodes of a room × change on another node", func(m *model, n float64) float64 {
			return presenceChanges(m) * reached(m, n) * m.number("change on another node") * micro
		}, cores},
		{"CPU: heartbeats", "nodes × publication received", func(m *model, n float64) float64 {
			return n * m.number("publication received") * micro
		}, cores},
		{"CPU: connections", "connections ÷ lifetime × (handshake + close)", func(m *model, _ float64) float64 {
			return opened(m) * (m.number("handshake") + m.number("close")) * micro
		}, cores},
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.name
	}
	return append(rows,
		modelRow{"**CPU**", "sum", sumOf(nodeRows, names...), cores},
		modelRow{"CPU for TLS in the node, in addition", "connections ÷ lifetime × (handshake with TLS − handshake); encryption is not included", func(m *model, _ float64) float64 {
			return opened(m) * (m.number("handshake with TLS") - m.number("handshake")) * micro
		}, cores},
		modelRow{"CPU of a message to all connections", "connections × delivery", func(m *model, _ float64) float64 {
			return conns(m) * m.number("delivery") * micro
		}, seconds},
	)
}

func nodeNetwork() []modelRow {
	return []modelRow{
		{"network to clients", "(calls/s + deliveries/s) × message with headers", func(m *model, _ float64) float64 {
			return (calls(m) + deliveries(m)) * frame(m)
		}, megabytesPerSecond},
		{"network from clients", "calls/s × message with headers + (deliveries/s + pings/s) × headers", func(m *model, _ float64) float64 {
			return calls(m)*frame(m) + (deliveries(m)+pings(m))*m.number("headers of a message")
		}, megabytesPerSecond},
		{"network from and to Redis", "that of Redis, below, ÷ nodes", func(m *model, n float64) float64 {
			return sumOf(redisRows, "**network from Redis**", "**network to Redis**")(m, n) / n
		}, megabytesPerSecond},
	}
}

// redisRows returns the rows of all Redis servers together.
func redisRows() []modelRow { return slices.Concat(redisCPU(), redisMemory(), redisNetwork()) }

func redisCPU() []modelRow {
	const decisions, records, moves, inBursts, eachAlone, presence, follows, beats = "CPU: decisions of limiters", "CPU: session records",
		"CPU: sessions that move", "CPU: publications, in bursts", "CPU: publications, alone", "CPU: presence", "CPU: rooms that are new on a node", "CPU: heartbeats"
	return []modelRow{
		{decisions, "nodes × calls/s × decision", func(m *model, n float64) float64 {
			return n * calls(m) * m.number("decision on Redis") * micro
		}, cores},
		{records, "nodes × session writes/s × write", func(m *model, n float64) float64 {
			return n * sessionWrites(m) * m.number("session write") * micro
		}, cores},
		{moves, "2 × nodes × resumed sessions/s × (publication + copy), alone", func(m *model, n float64) float64 {
			return 2 * n * resumed(m) * publicationAlone(m, 1) * micro
		}, cores},
		{inBursts, "nodes × publications/s × (publication + nodes of a room × copy), in bursts", func(m *model, n float64) float64 {
			return n * publications(m) * publicationInBursts(m, reached(m, n)) * micro
		}, cores},
		{eachAlone, "the same, each publication alone", func(m *model, n float64) float64 {
			return n * publications(m) * publicationAlone(m, reached(m, n)) * micro
		}, cores},
		{presence, "nodes × changes/s × (publication + nodes of a room × copy), alone", func(m *model, n float64) float64 {
			return n * presenceChanges(m) * publicationAlone(m, reached(m, n)) * micro
		}, cores},
		{follows, "nodes × new rooms/s × (nodes − 1) × (publication + copy), alone", func(m *model, n float64) float64 {
			return n * followed(m, n) * (n - 1) * publicationAlone(m, 1) * micro
		}, cores},
		{beats, "5 × nodes × publication + (nodes² + 4 × nodes) × copy, alone", heartbeatCPU, cores},
		{"CPU: comparisons", "nodes × rooms of a node ÷ interval × comparison; not in the sums", func(m *model, n float64) float64 {
			rooms := conns(m) * reached(m, n) / m.number("connections of a room")
			return n * rooms / m.number("interval of comparisons") * m.number("comparison of a topic") * micro
		}, cores},
		{"CPU: comparisons of logs of users", "nodes × users of a node ÷ interval × comparison, with `UserHistory`; not in the sums", func(m *model, n float64) float64 {
			return n * conns(m) / m.number("interval of comparisons") * m.number("comparison of a topic") * micro
		}, cores},
		{"**CPU, at least**", "sum, with publications in bursts", sumOf(redisRows, decisions, records, moves, inBursts, presence, follows, beats), cores},
		{"**CPU, at most**", "sum, with publications alone", sumOf(redisRows, decisions, records, moves, eachAlone, presence, follows, beats), cores},
		{"masters of a Cluster, at least", "CPU, at least ÷ 0.7 of a core, rounded up", masters("**CPU, at least**"), plain},
		{"masters of a Cluster, at most", "CPU, at most ÷ 0.7 of a core, rounded up", masters("**CPU, at most**"), plain},
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
		{buckets, "nodes × connections × bucket, if all are in use", func(m *model, n float64) float64 {
			return n * conns(m) * m.number("bucket")
		}, megabytes},
		{records, "nodes × sessions × record", func(m *model, n float64) float64 {
			return n * sessionCount(m) * m.number("session record")
		}, megabytes},
		{nodes, "nodes × memory of a node's connections", func(m *model, n float64) float64 {
			return n * m.number("node, memory on Redis")
		}, megabytes},
		{"**memory**", "sum, without [histories](../guides/recovery.md#redis)", sumOf(redisRows, buckets, records, nodes), megabytes},
	}
}

func redisNetwork() []modelRow {
	return []modelRow{
		{"network: heartbeats", "(nodes² + 4 × nodes) × heartbeat + nodes² × (rooms that have changed in 3 to 15 s, and 512 bytes × 16 ÷ nodes)", heartbeatBytes, megabytesPerSecond},
		{"**network from Redis**", "publications/s × nodes of a room × copy + heartbeats + half of the bytes of decisions + answers to session writes", func(m *model, n float64) float64 {
			return n*publications(m)*reached(m, n)*m.number("copy, bytes") + heartbeatBytes(m, n) +
				n*calls(m)*m.number("decision, bytes")/2 + n*sessionWrites(m)*m.number("answer to a session write, bytes")
		}, megabytesPerSecond},
		{"**network to Redis**", "publications/s × copy + heartbeats + half of the bytes of decisions + session writes", func(m *model, n float64) float64 {
			beats, _ := heartbeats(n)
			return n*publications(m)*m.number("copy, bytes") + beats*m.number("heartbeat, bytes") +
				n*calls(m)*m.number("decision, bytes")/2 + n*sessionWrites(m)*m.number("session write, bytes")
		}, megabytesPerSecond},
	}
}

// failureRows returns the rows of a node that fails: its connections open again on the others.
func failureRows() []modelRow {
	share := func(m *model, n float64) float64 { return conns(m) / (n - 1) }
	return []modelRow{
		{"connections for each other node", "connections ÷ (nodes − 1)", share, plain},
		{"first attempts for each other node", "the same ÷ first delay of a client", func(m *model, n float64) float64 {
			return share(m, n) / m.number("first delay of a client")
		}, perSecond},
		{"CPU of each other node", "connections for each × handshake", func(m *model, n float64) float64 {
			return share(m, n) * m.number("handshake") * micro
		}, seconds},
		{"CPU of each other node, with TLS", "connections for each × handshake with TLS", func(m *model, n float64) float64 {
			return share(m, n) * m.number("handshake with TLS") * micro
		}, seconds},
		{"duration with a limit of attempts", "connections for each ÷ limit of attempts", func(m *model, n float64) float64 {
			return share(m, n) / m.number("limit of attempts")
		}, seconds},
		{"CPU of Redis for sessions", "2 × sessions of a node × write", func(m *model, n float64) float64 {
			return share(m, n) * (n - 1) * m.number("share of connections with a session") * 2 * m.number("session write") * micro
		}, seconds},
		{"CPU of Redis for members that join again", "members × (publication + nodes of a room × copy), alone", func(m *model, n float64) float64 {
			return ownMembers(m) * publicationAlone(m, reached(m, n-1)) * micro
		}, seconds},
	}
}
