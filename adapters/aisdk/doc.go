// Package aisdk serves the chat transport WebSocketChatTransport of the npm package "ai", the
// Vercel AI SDK, from version 7.0.135 on, over runs of package run: a page with useChat works
// unchanged, and its answers outlive its connection.
//
//	answers := run.New(r, "answer/{user}/{chat}", &run.Options[aisdk.Chunk]{Merge: aisdk.MergeDeltas})
//	handler := aisdk.New(r, answers, &aisdk.Options{
//		Authenticate: authenticate,
//		Authorize:    func(context.Context, aisdk.Access) error { return nil }, // the topic has the user
//		Topic:        func(id router.Identity, chat string) string { return "answer/" + id.UserID + "/" + chat },
//		Answer: func(ctx context.Context, req *aisdk.Request, out *aisdk.Output) error {
//			for text, err := range model.Stream(ctx, req.Message.Text()) {
//				if err != nil {
//					return err
//				}
//				if err := out.Text(text); err != nil {
//					return err
//				}
//			}
//			return nil
//		},
//	})
//	http.Handle("/chat", handler)
//
// # Requests
//
// A send starts a run of the topic of its chat. A resume attaches to the latest run of the topic,
// on any node, while it is active and until Options.Retain of the runs has passed since its end. It
// is answered with all chunks from the first one on, of which neighbors are merged. While a run is
// active, a send with another message is answered with an error. A send with the same message
// attaches to the same run, even after its end: the ID of the start is made of the user's last
// message and of the trigger. A new run begins if the one before has ended and is not the latest one
// of the chat, or has failed, or if the send is a regeneration.
//
// An abort stops the run, if Options.Authorize permits it. The page sends it for the method stop of
// useChat, and also when the component of useChat is unmounted, unless the application has made the
// object Chat itself. A tab that is closed sends nothing, and stops nothing.
//
// # Ends
//
// A run that is [run.Completed] ends with the chunk "finish" and the frame "end", and one that is
// [run.Stopped] with the chunk "abort" and the frame "end". Any other ends with the frame "error",
// whose text is the public part of the error. Parts that are open then are closed first.
//
// # Security
//
// A page can forge all messages of a conversation, and those of the assistant and of tools among
// them. So Options.Answer receives only the user's last message: load the conversation from your
// own store. Headers and body are data of the page, too. Authentication is the handshake: a cookie,
// a query parameter or a subprotocol; see [router.Token]. Options.Origins keeps pages of other
// sites from using the cookies of the user.
//
// Router.Revoke ends answers of the topic that are being sent to the user, with an error, and
// Router.DisconnectUser closes the user's connections, both on all nodes. Neither stops a run.
//
// # Limits of the transport
//
// Outputs of tools that the page executes, and approvals, are in the messages that Options.Answer
// does not receive: execute tools on the server. The page does not reconnect: useChat with the
// option resume attaches when it is mounted, and when a hidden page becomes visible. Otherwise the
// application calls resumeStream. A resume always receives the answer from its beginning;
// lastSequence is ignored.
package aisdk
