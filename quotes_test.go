package penstock_test

import "fmt"

const (
	memoryPage = "docs/guides/memory.md"

	kernelBytes = "broadcast: penstock, kernel bytes"
	idleBytes   = "idle: penstock, RSS"
	idleHeap    = "idle: penstock, heap"
	tlsBytes    = "idletls: penstock, RSS"
	tlsHeap     = "idletls: penstock, heap"
	memberHeap  = "presence: member - room, heap"
	sessionHeap = "sessions: session - no session, heap"
)

func roundTrip(other string) string { return fmt.Sprintf("roundtrip: penstock / %s, 64x16", other) }

func history(columns string) string { return "history: penstock / centrifuge, " + columns }

// quotes are the measured figures in documents.
var quotes = []quote{
	{
		"README.md", `cost ([\d.]+) to ([\d.]+) times the server CPU .* and ([\d.]+) times that of Bun`,
		[]quoted{
			lowest(2, roundTrip("coder"), roundTrip("gorilla"), roundTrip("gws"), roundTrip("melody")),
			highest(2, roundTrip("coder"), roundTrip("gorilla"), roundTrip("gws"), roundTrip("melody")),
			ratio(2, roundTrip("bun")),
		},
	},
	{
		"README.md", `stores ([\d.]+) to ([\d.]+) times as many publications as with centrifuge`,
		[]quoted{lowest(1, history("1 topic"), history("1,000 topics")), highest(1, history("1 topic"), history("1,000 topics"))},
	},
	{
		"README.md", `makes ([\d.]+) times as many decisions per second as redis_rate`,
		[]quoted{ratio(1, "redis: penstock / redis_rate, 128 callers")},
	},
	{
		"README.md", `takes ([\d.]+) KB, or ([\d.]+) KB with TLS, and ([a-z]+) goroutine`,
		[]quoted{kilo(1, idleBytes), kilo(0, tlsBytes), none("idle: penstock, goroutines", "idletls: penstock, goroutines")},
	},
	{
		"docs/guides/http-fallback.md", `WebSocket \| ([\d.]+) KB \| 0 .*?HTTP/1.1 \| (\d+) KB \| (\d+) \| ([\d.]+) times .*?HTTP/2 \| (\d+) KB \| (\d+) \| ([\d.]+) times`,
		[]quoted{
			kilo(1, idleBytes),
			kilo(0, "fallback: HTTP/1.1, RSS"), whole("fallback: HTTP/1.1, goroutines"), ratio(1, "fallback: HTTP/1.1 / WebSocket, CPU"),
			kilo(0, "fallback: HTTP/2, RSS"), whole("fallback: HTTP/2, goroutines"), ratio(1, "fallback: HTTP/2 / WebSocket, CPU"),
		},
	},
	{"SECURITY.md", `a key takes about ([\d,]+) bytes`, []quoted{tens("redis keys: penstock, 100,000 keys")}},
	{
		"docs/guides/connections.md", `takes about ([\d.]+) KB of the process, or ([\d.]+) KB if the server terminates .* and about ([\d.]+) KB of the kernel`,
		[]quoted{kilo(1, idleBytes), kilo(0, tlsBytes), kilo(0, kernelBytes)},
	},
	{
		memoryPage, `without TLS in the server \| ([\d.]+) KB \| ([\d.]+) KB \| ([\d.]+) KB \| (\d+) `,
		[]quoted{kilo(1, idleBytes), kilo(1, idleHeap), kilo(1, kernelBytes), whole("idle: penstock, goroutines")},
	},
	{
		memoryPage, `with \[TLS in the server\]\(\S+\) \| ([\d.]+) KB \| ([\d.]+) KB \| ([\d.]+) KB \| (\d+) `,
		[]quoted{kilo(1, tlsBytes), kilo(1, tlsHeap), kilo(1, kernelBytes), whole("idletls: penstock, goroutines")},
	},
	{
		memoryPage, `hides the TCP connection \| ([\d.]+) KB \| \| ([\d.]+) KB \| (\d+) `,
		[]quoted{kilo(1, "memory: wrapped, RSS"), kilo(1, kernelBytes), whole("memory: wrapped, goroutines")},
	},
	{memoryPage, `of ten \| ([\d,]+) `, []quoted{whole("memory: ten topics - no topic, heap")}},
	{memoryPage, `first subscription \| ([\d,]+) `, []quoted{whole("memory: one room - no topic, heap")}},
	{memoryPage, `with a history \| ([\d,]+) `, []quoted{whole("memory: history - no topic, heap")}},
	{memoryPage, `with one subscriber \| ([\d,]+) `, []quoted{whole("memory: own topic - no topic, heap")}},
	{memoryPage, `presence, one node \| ([\d,]+) `, []quoted{whole("memory: member in memory - one room, heap")}},
	{
		memoryPage, `a member, with Redis \| ([\d,]+), and ([\d,]+) on each other node`,
		[]quoted{whole(memberHeap), whole("presence: member - room, heap, other node")},
	},
	{
		memoryPage, `a session, with Redis \| ([\d,]+), and ([\d,]+) in Redis`,
		[]quoted{whole(sessionHeap), whole("sessions: session, bytes on Redis")},
	},
	{memoryPage, `a session, without a broker \| ([\d,]+) `, []quoted{whole("memory: session in memory - no session in memory, heap")}},
	{memoryPage, `queue it is \| ([\d,]+);`, []quoted{whole("queues: publication, heap")}},
	{memoryPage, `\(.Conn\.Send.\) \| ([\d,]+) `, []quoted{whole("queues: message, heap")}},
	{
		memoryPage, `\| without TLS \| ([\d,]+) \| \| with TLS in the server \| ([\d,]+) \| \| without TLS, with .*? with Redis \| ([\d,]+) \|`,
		[]quoted{perGigabyte(idleBytes, idleHeap), perGigabyte(tlsBytes, tlsHeap), perGigabyte(idleBytes, idleHeap, sessionHeap, memberHeap, "presence: room - one topic, heap")},
	},
}

// none is "no", if all values round to 0.
func none(names ...string) quoted {
	return func(m measurements) string {
		if highest(0, names...)(m) != "0" {
			return "some"
		}
		return "no"
	}
}
