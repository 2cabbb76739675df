//go:build !js

package client

import "github.com/penstock-go/penstock/internal/protocol"

// replyTypeOf returns the type of the reply to a call of the protocol.
func replyTypeOf(m Message) string {
	switch m.(type) {
	case protocol.Hello:
		return protocol.TypeWelcome
	case protocol.Auth:
		return protocol.TypeAuthenticated
	case protocol.Subscribe:
		return protocol.TypeSubscribed
	case protocol.Unsubscribe:
		return protocol.TypeUnsubscribed
	default:
		return protocol.TypeResumed
	}
}

// publicMembers returns members of the protocol as the application has them.
func publicMembers(members []protocol.Member) []Member {
	if members == nil {
		return nil
	}
	converted := make([]Member, len(members))
	for i, m := range members {
		converted[i] = Member(m)
	}
	return converted
}
