package router

import (
	"context"
	"encoding/binary"
	"time"
)

// usersTopic carries packets about the connections of users, and every node subscribes to it. It
// is the name of no application's topic, because it contains a control character.
const usersTopic = "\x00users"

// SendToUser sends a message to all connections of a user, on all nodes, and returns the number of
// those on this node. As with Publish, connections on other nodes receive it at most once; a loss
// is reported to Options.OnMessagesLost of their nodes with the topic "". SendToUser does nothing
// for the empty userID, which anonymous connections have. It returns an error if the message
// cannot be encoded, or the error of Options.Broker.
func (r *Router) SendToUser(tenantID, userID string, m Message) (connsOnThisNode int, err error) {
	user := userKey{tenantID, userID}
	var conns []*Conn
	if userID != "" {
		conns = r.conns.ofUser(user)
	}
	p, err := r.encodeAll(m, r.formatsToPublish(r.formatsOf(conns), userID != ""))
	defer p.release()
	if p.empty() || userID == "" {
		return 0, err
	}
	p.sendAll(conns)
	return len(conns), joinErrors(err, r.publishToNodes(func() []byte {
		return append(userPacket(packetUserMessage, user), r.messagePacket(&p)...)
	}))
}

// DisconnectUser closes all connections of a user, on all nodes, as [Conn.Close] does, ends their
// sessions, also those of clients that are away, and returns the number of connections on this node.
// Clients may connect again; to prevent that, make Options.Authenticate reject them first. DisconnectUser
// does nothing for the empty userID.
//
// It returns the error of Options.Broker: sessions may then have remained, or connections on other nodes,
// so call it again. Other nodes are notified at most once. If one misses that, which
// Options.OnMessagesLost reports with the topic "", connections with a session are closed within a third
// of Resume.Within, and others remain.
func (r *Router) DisconnectUser(tenantID, userID string, code StatusCode, reason string) (connsOnThisNode int, err error) {
	if userID == "" {
		return 0, nil
	}
	user := userKey{tenantID, userID}
	connsOnThisNode = r.disconnect(user, code, reason) // even if the store does not answer
	ctx, cancel := context.WithTimeout(context.Background(), revocationTimeout)
	defer cancel()
	_, err = r.storeRevocation(ctx, user, func(l *revocationList, seq uint64) { l.Sessions, l.Topics = seq, nil })
	if r.resumes() {
		r.disconnect(user, code, reason) // those that have resumed meanwhile
	}
	return connsOnThisNode, joinErrors(err, r.publishToNodes(func() []byte {
		packet := binary.AppendUvarint(userPacket(packetUserDisconnect, user), uint64(code))
		return append(packet, reason...)
	}))
}

// disconnect closes the connections of a user on this node.
func (r *Router) disconnect(user userKey, code StatusCode, reason string) int {
	conns := r.conns.ofUser(user)
	for _, c := range conns {
		c.discardSession()
		c.leaveForGood()
		c.Close(code, reason)
	}
	for _, connID := range r.away.ofUser(user) {
		r.endAway(connID, SessionRevoked)
	}
	r.endAbsence(user, func(string) bool { return true })
	return len(conns)
}

func (r *Router) publishToNodes(packet func() []byte) error {
	if r.opts.Broker == nil {
		return nil
	}
	return r.session.Publish(usersTopic, packet())
}

// userPacket returns the beginning of a packet about a user.
func userPacket(kind byte, user userKey) []byte {
	packet := []byte{kind}
	for _, s := range []string{user.tenantID, user.userID} {
		packet = append(binary.AppendUvarint(packet, uint64(len(s))), s...)
	}
	return packet
}

// receiveUserPacket handles a packet that another node has published on usersTopic.
func (r *Router) receiveUserPacket(packet []byte) {
	if kind := packet[0]; kind == packetSessionClaimed || kind == packetSessionMoved {
		r.receiveClaim(kind, packet[1:])
		return
	}
	tenantID, rest, ok := cutString(packet[1:])
	if !ok {
		return
	}
	userID, rest, ok := cutString(rest)
	if !ok || userID == "" {
		return
	}
	user := userKey{tenantID, userID}
	switch packet[0] {
	case packetUserMessage:
		r.receiveUserMessage(user, rest)
	case packetUserRevoke:
		r.receiveRevocation(user, rest)
	case packetUserDisconnect:
		if code, n := binary.Uvarint(rest); n > 0 && code <= maxStatusCode {
			r.disconnect(user, StatusCode(code), string(rest[n:]))
		}
	}
}

// maxStatusCode is the largest code of a close frame.
const maxStatusCode = 4999

func (r *Router) receiveUserMessage(user userKey, packet []byte) {
	conns := r.conns.ofUser(user)
	used := r.formatsOf(conns)
	now := time.Now()
	p, published, ok := r.parseMessagePacket(packet, used, now)
	if !ok {
		return
	}
	defer p.release()
	r.observe(Event{Kind: EventDelivered, Count: len(conns), Duration: max(now.Sub(published), 0)})
	p.sendAll(conns)
	if p.lacks(used) {
		r.topics.messagesLost(usersTopic, 1)
	}
}

// cutString reads a string that follows its length.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	p, rest, ok := cutBytes(b)
	return string(p), rest, ok
}

// cutBytes reads bytes that follow their length.
func cutBytes(b []byte) (p, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	b = b[size:]
	return b[:n], b[n:], true
}
