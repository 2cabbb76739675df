// Package durablestreams serves runs and topics over plain HTTP: the read side of the Durable Streams protocol,
// https://github.com/durable-streams/durable-streams. Programs read them with its clients, with an EventSource, or with
// curl.
//
//	mux.Handle("/answers/{chat}", durablestreams.Runs(r, answers, &durablestreams.Options[Token]{
//		Topic:     func(req *http.Request) string { return "answer/" + req.PathValue("chat") },
//		Authorize: mayRead,
//	}))
//
// GET reads from the parameter offset on: -1 is the first message that is stored, now is the end, and other offsets are
// those of Stream-Next-Offset. With live=long-poll it waits for messages, and with live=sse it sends them as
// Server-Sent Events. HEAD returns the end. Nothing can be written: that is what run.Runs and Router.Publish are for.
//
// # Offsets
//
// An offset of a run has the number of an item, and the ID of the run. The parameter run chooses a run by its ID; the
// latest one of the topic is read otherwise. An offset of a topic has the offset of a position, and its epoch.
// The status is 410 if the run is not stored any more, if the epoch has ended, or if messages after the
// offset are not retained. The client then begins again at -1.
//
// Neighbors that Options.Merge of package run makes one item are one message. A stream of a run ends with
// Stream-Closed when the run has ended, however it has ended.
//
// # Limits
//
// A request keeps its goroutine, one page of at most Options.MaxBytes or one longer message, and what package run or
// the router keeps for a reader. Options bound the requests, in total and per client address. A client that does not
// read is disconnected after 30 seconds. When Router.Shutdown begins to close connections, long polls are answered, and
// SSE ends.
//
// # Published tests
//
// internal/interop/durablestreams runs those published tests that read, version 0.3.6. It does not run those that test
// PUT, POST and DELETE, sequence numbers, producers, TTL, forks and subscriptions, which are not read operations, and
// for topics those about closed streams, because topics do not end.
package durablestreams
