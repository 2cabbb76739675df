// Package inspect shows operators what a cluster of routers does, and lets them act: an
// [http.Handler] with a JSON API and one page that needs no other files.
//
//	inspector := inspect.New(r, &inspect.Options{Authorize: authorize})
//	internal.Handle("/inspect/", http.StripPrefix("/inspect", inspector))
//
// It shows what all nodes have done in the last 15 minutes; finds the connections of a user, an
// address or an ID; says why a client was refused, and whether its next message would be admitted;
// lists topics; shows and changes limits; traces the messages of a user or a type; and disconnects
// clients. Serve it on a private listener, and not on that of clients.
//
// # Cost
//
// A router without an inspector does nothing for it. With one, every message costs two atomic loads
// more and the events of [router.Router.Observe], which are counted; every reported refusal is an
// entry in a ring. A timer samples the counters every 5 seconds, for 15 minutes and at most 64
// types of messages: some 200 KiB. Everything else is done when an operator asks: from an index, or
// by a scan of this node's connections, which locks each of them briefly and makes pauses:
// `go test -bench BenchmarkCalls ./inspect` measures what calls notice. An answer has at most 100
// entries per list, apart from samples. The publications of topics are counted while an operator
// looks at them.
//
// # Nodes
//
// The inspector asks all other nodes through the router's broker, and merges what they answer
// within Options.Timeout. Nodes that do not answer, or that have no inspector, are part of the
// answer. All nodes should have an inspector with the same Limits. What one node has authorized,
// the others do: like packets of the broker, questions come from trusted nodes.
//
// # Security
//
// Options.Authorize decides about every request, including those for the page. The API accepts POST
// with a body of application/json from the inspector's own origin alone. The page loads nothing
// from other origins, runs no inline script, and cannot be framed. Answers contain no payloads
// unless Options.Redact returns some, and no access tokens.
package inspect
