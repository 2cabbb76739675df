package chat

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// maxRooms bounds the rooms with members on a node.
const maxRooms = 1000

// maxRoomsPerConn bounds how many of these rooms one client can be in at the same time.
const maxRoomsPerConn = 10

// shownMessages is how many messages a client receives that joins a room for the first time.
const shownMessages = 50

// maxHistory is how many messages of a room are kept.
const maxHistory = 100

// storeTimeout bounds how long a client waits for the history of a room.
const storeTimeout = 5 * time.Second

// rooms counts the members of each room on all nodes. Its methods handle messages concurrently.
type rooms struct {
	router *router.Router

	mu      sync.Mutex
	byTopic map[string]connCounts // the rooms with members on this node
}

// connCounts holds the number of connections of each user in a room, on all nodes, by user name.
type connCounts map[string]int

func newRooms() *rooms { return &rooms{byTopic: map[string]connCounts{}} }

// roomPattern matches the topics of all rooms. A room's name may contain slashes, a tenant's name
// has none.
const roomPattern = "room/{tenant}/{name...}"

// noTenant stands for the tenant of users without one. It is not a valid name of a tenant.
const noTenant = "~"

// topicOf returns the topic of a room. It includes the tenant of the user, so that tenants cannot see
// each other's rooms.
func topicOf(user router.Identity, room string) string {
	return "room/" + cmp.Or(user.TenantID, noTenant) + "/" + room
}

func roomOf(topic string) string { return strings.SplitN(topic, "/", 3)[2] }

// join makes the connection a member. A client that returns receives what it has missed, a new one
// receives the latest messages. Both then receive every message after the position, once and in order.
func (rs *rooms) join(ctx *router.Context, m JoinRoom) (joined RoomJoined, err error) {
	topic := topicOf(ctx.Conn().Identity(), m.Room)
	wasMember := ctx.Conn().Subscribed(topic)
	defer func() {
		if err != nil && !wasMember {
			ctx.Unsubscribe(topic)
		}
	}()
	var recovery router.Recovery
	if err := ctx.Subscribe(topic, router.Since(broker.Position(m.Position), &recovery)); err != nil {
		return RoomJoined{}, err
	}
	if err := rs.enter(ctx, topic); err != nil {
		return RoomJoined{}, err
	}
	joined = RoomJoined{Room: m.Room, Users: rs.users(topic), Position: Position(recovery.Position)}
	joined.Lost = !recovery.Recovered || recovery.Ended != nil
	if m.Epoch == "" || !recovery.Recovered {
		joined.History, err = rs.read(ctx, topic, broker.Query{Before: recovery.Position.Offset + 1, Limit: shownMessages, Backward: true})
	}
	return joined, err
}

// enter joins the presence of a room. It returns RESOURCE_EXHAUSTED if there are maxRooms other rooms
// with members.
func (rs *rooms) enter(ctx *router.Context, topic string) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byTopic[topic] == nil && len(rs.byTopic) >= maxRooms {
		return errors.Errorf(errors.ResourceExhausted, "too many rooms; try again later")
	}
	if err := ctx.Subscribe(topic, router.Present(displayName(ctx.Conn()))); err != nil {
		return err
	}
	rs.connCountsOf(topic) // reserves the room until onPresence is called
	return nil
}

// read returns messages from the history of a room, oldest first.
func (rs *rooms) read(ctx context.Context, topic string, q broker.Query) ([]Said, error) {
	stored, _, err := rs.router.ReadHistory(ctx, topic, q)
	if err != nil {
		return nil, err
	}
	messages := make([]Said, len(stored))
	for i, m := range stored {
		if err := m.Decode(&messages[i]); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

func (rs *rooms) leave(ctx *router.Context, m LeaveRoom) error {
	ctx.Unsubscribe(topicOf(ctx.Conn().Identity(), m.Room))
	return nil
}

// say stores a message, which all nodes then deliver. After an error with the code OUTCOME_UNKNOWN the
// message may have been stored; a client that sends it again with the same ID does not double it.
func (rs *rooms) say(ctx *router.Context, m Say) (Stored, error) {
	topic := topicOf(ctx.Conn().Identity(), m.Room)
	if !ctx.Conn().Subscribed(topic) {
		return Stored{}, errors.Errorf(errors.FailedPrecondition, "join the room first")
	}
	said := Said{m.Room, displayName(ctx.Conn()), m.Text, ctx.ReceivedAt().UTC(), cmp.Or(m.ID, rand.Text())}
	timeout, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := rs.router.Publish(topic, said, router.IdempotencyKey(sender(ctx.Conn())+" "+said.ID), router.Stored(timeout, nil))
	return Stored{m.Room, said.ID}, err
}

// sender returns the user, or the address of a guest, whose name differs between nodes. Idempotency
// keys contain it, so that users cannot suppress each other's messages.
func sender(c *router.Conn) string { return cmp.Or(c.Identity().UserID, "~"+c.IP().String()) }

func (rs *rooms) who(ctx *router.Context, m Who) (Users, error) {
	return Users{m.Room, rs.users(topicOf(ctx.Conn().Identity(), m.Room))}, nil
}

func (rs *rooms) search(ctx *router.Context, m SearchHistory) (HistoryFound, error) {
	found := HistoryFound{m.Room, []Said{}}
	messages, err := rs.read(ctx, topicOf(ctx.Conn().Identity(), m.Room), broker.Query{Limit: maxHistory})
	query := strings.ToLower(m.Query)
	for _, said := range messages {
		if strings.Contains(strings.ToLower(said.Text), query) {
			found.Matches = append(found.Matches, said)
		}
	}
	return found, err
}

// onPresence sends the members on this node UserJoined and UserLeft. A user with several
// connections joins with the first and leaves with the last one. The router reports members
// on any node, as long as this node has members in the room.
func (rs *rooms) onPresence(e router.PresenceEvent) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	room, user := roomOf(e.Topic), e.Member.Info
	byUser := rs.connCountsOf(e.Topic)
	switch {
	case e.Joined:
		byUser[user]++
		if byUser[user] == 1 {
			_ = rs.router.Publish(e.Topic, UserJoined{room, user}, router.Local(), router.Except(rs.router.Conn(e.Member.ConnID)))
		}
	case byUser[user] > 1:
		byUser[user]--
	default:
		delete(byUser, user)
		_ = rs.router.Publish(e.Topic, UserLeft{room, user}, router.Local())
		if len(byUser) == 0 {
			delete(rs.byTopic, e.Topic)
		}
	}
}

// connCountsOf creates the counts of a room if there are none. The caller holds mu.
func (rs *rooms) connCountsOf(topic string) connCounts {
	if rs.byTopic[topic] == nil {
		rs.byTopic[topic] = connCounts{}
	}
	return rs.byTopic[topic]
}

// users returns the sorted names of the users in a room, on all nodes.
func (rs *rooms) users(topic string) []string {
	names := []string{}
	for _, m := range rs.router.Presence(topic) {
		names = append(names, m.Info)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
