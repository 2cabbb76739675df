package router

// This file makes connections members of topics.

// A Member is a connection that is present in a topic, or a session: it stays present, as the same
// member, from the loss of a connection until the client resumes it or cannot do so any more. In a
// topic with a [TopicOptions] PresenceGrace, it is a user.
type Member struct {
	ConnID   string `json:"connId"` // of the connection, or of the first one of its session; or a text that stands for the user
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"` // the argument of Present
}

// A PresenceEvent reports that a member has joined a topic or left it.
type PresenceEvent struct {
	Topic  string
	Member Member
	Joined bool // false if the member has left
}

// Presence returns the members of topic on all nodes, sorted by ConnID. It returns nil unless a connection
// of this node is present in the topic, or has asked for its members, and this node still has subscribers.
func (r *Router) Presence(topic string) []Member {
	var all []Member
	for _, m := range r.topics.Members(topic) {
		all = append(all, Member(m))
	}
	return all
}
