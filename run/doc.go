// Package run starts runs: producers of items, such as the tokens of a language model or the progress of a
// job, that outlive the connection that has started them. Everyone who may read a run attaches to it at any
// time, on any node, in any number of tabs, and receives every item once and in order.
//
//	answers := run.New(r, "answer/{chat}", &run.Options[Token]{Authorize: mayUse})
//	info, err := answers.Start(ctx, "answer/42", nil, func(ctx context.Context, out *run.Output[Token]) error {
//		for text, err := range model.Stream(ctx, prompt) {
//			if err != nil {
//				return err
//			}
//			if err := out.Emit(Token{Text: text}); err != nil {
//				return err
//			}
//		}
//		return nil
//	})
//
// # Topics, runs and items
//
// Runs belong to topics, and a topic has at most one active run. Each run has an ID. Its items have numbers
// from 0 on, by which a reader continues after a reconnect, on another node, or after a failover of the
// store. Clients name the run, and not only the topic, to attach to it and to stop it.
//
// A disconnect is not a stop: a run ends when its producer returns, when it is stopped, when it exceeds a
// limit, or when its node dies. A client that wants it to end calls Stop.
//
// # Nodes
//
// The run has an owner, which is the node on which it was started. All nodes serve its readers and stop it.
// The owner has a lease, which it renews. If it dies, the run ends with the state [Interrupted] at most two
// seconds after the lease has expired, or continues on another node: see Options.Resume. A node that was
// paused meanwhile stores no further items: the history refuses them.
//
// The items of a run are stored in a history of Options.Broker, or of this process if the router has no broker.
// If a failover of the store loses items, the owner stores them again. What the store loses of a run that has
// ended is lost.
//
// # Clients
//
// New registers two message types, whose names begin with the type of the items: for items of type "token",
// the stream "token.attach" and the call "token.stop". Package client/runs, and penstock-client/run of the
// TypeScript client, read and stop runs with them, by the types of the contract. Subscribers of the topic
// itself learn which run is the latest, and when it begins and ends, from messages of type "run.changed".
package run
