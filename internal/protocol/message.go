package protocol

// A Message is a struct of this package.
type Message interface {
	MessageType() string
	protocol()
}

// IsMessage reports whether m is a [Message]: no message of an application may have a reserved type.
func IsMessage(m any) bool {
	_, ok := m.(Message)
	return ok
}

// MessageType returns the type of the message.
func (Hello) MessageType() string { return TypeHello }
func (Hello) protocol()           {}

// MessageType returns the type of the message.
func (Welcome) MessageType() string { return TypeWelcome }
func (Welcome) protocol()           {}

// MessageType returns the type of the message.
func (Auth) MessageType() string { return TypeAuth }
func (Auth) protocol()           {}

// MessageType returns the type of the message.
func (Authenticated) MessageType() string { return TypeAuthenticated }
func (Authenticated) protocol()           {}

// MessageType returns the type of the message.
func (IdentityExpiring) MessageType() string { return TypeIdentityExpiring }
func (IdentityExpiring) protocol()           {}

// MessageType returns the type of the message.
func (GoAway) MessageType() string { return TypeGoAway }
func (GoAway) protocol()           {}

// MessageType returns the type of the message.
func (Subscribe) MessageType() string { return TypeSubscribe }
func (Subscribe) protocol()           {}

// MessageType returns the type of the message.
func (Subscribed) MessageType() string { return TypeSubscribed }
func (Subscribed) protocol()           {}

// MessageType returns the type of the message.
func (Unsubscribe) MessageType() string { return TypeUnsubscribe }
func (Unsubscribe) protocol()           {}

// MessageType returns the type of the message.
func (Unsubscribed) MessageType() string { return TypeUnsubscribed }
func (Unsubscribed) protocol()           {}

// MessageType returns the type of the message.
func (Moved) MessageType() string { return TypePosition }
func (Moved) protocol()           {}

// MessageType returns the type of the message.
func (StateComplete) MessageType() string { return TypeState }
func (StateComplete) protocol()           {}

// MessageType returns the type of the message.
func (PresenceChanged) MessageType() string { return TypePresence }
func (PresenceChanged) protocol()           {}

// MessageType returns the type of the message.
func (Resume) MessageType() string { return TypeResume }
func (Resume) protocol()           {}

// MessageType returns the type of the message.
func (Resumed) MessageType() string { return TypeResumed }
func (Resumed) protocol()           {}

// MessageType returns the type of the message.
func (StreamEnd) MessageType() string { return TypeStreamEnd }
func (StreamEnd) protocol()           {}
