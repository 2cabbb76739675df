package hints

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
)

// NoPattern reports a subscription to a topic that no pattern matches.
func (h *Hints) NoPattern(topic string) {
	h.hint(slog.LevelWarn, cause{"subscription refused: no pattern matches the topic", topic}, "topic",
		fmt.Sprintf("router.Topic(r, %q, &router.TopicOptions{Authorize: …}), or a pattern that matches it, such as \"room/{id}\"", topic))
}

// NoAuthorize reports a subscription to a topic of a pattern that no client may subscribe to. The
// position is that of the pattern, file:line.
func (h *Hints) NoAuthorize(pattern, position string) {
	h.hint(slog.LevelWarn, cause{"subscription refused: the pattern has no Authorize", pattern}, "topic",
		"set TopicOptions.Authorize of the pattern registered at "+position+", or subscribe the client in a handler")
}

// NoPresence reports a client that asks for the presence of a topic of a pattern without it, and so waits for
// members in vain.
func (h *Hints) NoPresence(pattern, position string) {
	h.hint(slog.LevelWarn, cause{"presence requested: the pattern has none", pattern}, "topic",
		"set TopicOptions.Presence of the pattern registered at "+position+", or remove onPresence or OnPresence from the subscription of the client")
}

// Sent reports a message that the server sends, if it is not declared.
func (h *Hints) Sent(m envelope.Message) {
	if m == nil || protocol.IsMessage(m) {
		return
	}
	name, err := envelope.MessageType(m)
	if err != nil || h.declared.Sends(name) {
		return
	}
	h.contract(cause{"message sent that is not declared", name},
		fmt.Sprintf("router.DeclareMessage[%v](r), or TopicOptions.Messages if it is published, so that contracts and generated clients have it", reflect.TypeOf(m)))
}

// Reply reports a reply to a message of a route, if it differs from the one that the route
// declares, of which the type is nil if there is none.
func (h *Hints) Reply(route string, reply envelope.Message, declared reflect.Type, declaredName string) {
	if reply == nil || protocol.IsMessage(reply) {
		return
	}
	name, err := envelope.MessageType(reply)
	switch {
	case err != nil || name == declaredName:
	case declared == nil:
		h.contract(cause{"reply sent that is not declared", route},
			fmt.Sprintf("set RouteDoc.Reply of the stream to %T{}, so that contracts and generated clients have it", reply))
	default:
		h.contract(cause{"reply sent that differs from the declared one", route},
			fmt.Sprintf("the contract says %v, the reply is a %T: SetReply must set the declared type", declared, reply))
	}
}

// Progress reports an update that the handler of a route sends, and that the route does not declare.
func (h *Hints) Progress(route string, update any) {
	h.contract(cause{"progress sent that is not declared", route},
		fmt.Sprintf("set RouteDoc.Progress of the route to a %T, so that contracts and generated clients have it", update))
}

// Call reports a call to a client, if it is not declared.
func (h *Hints) Call(m envelope.Message, reply reflect.Type) {
	name, err := envelope.MessageType(m)
	if err != nil || h.declared.Calls(name) {
		return
	}
	h.contract(cause{"client called with a message that is not declared", name},
		fmt.Sprintf("router.DeclareCall[%T, %v](r), so that contracts and generated clients have it", m, reply))
}

// Error reports how an error with which a route answers differs from what the route declares, or "". Clients rely on
// what a route declares, so it is an error even if the application declares nothing else.
func (h *Hints) Error(route, mismatch string) {
	const text = "error answered that differs from the declared ones"
	if mismatch != "" && h.add(cause{text, route + ": " + mismatch}) {
		h.write(slog.LevelError, text, slog.String("type", route), slog.String("remedy",
			mismatch+"; RouteDoc.Errors and RouteDoc.ErrorDetails of the route must have it, so that contracts and generated clients have it"))
	}
}

// contract reports a message of a type that is not as contracts say. It is an error if the
// application declares what it sends, because clients then rely on a contract that is wrong.
func (h *Hints) contract(c cause, remedy string) {
	level := slog.LevelWarn
	if h.declared.SendsAny() {
		level = slog.LevelError
	}
	h.hint(level, c, "type", remedy)
}
