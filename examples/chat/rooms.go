package main

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// maxRooms bounds the rooms in the memory of a node: those with members, and those with a history.
const maxRooms = 1000

// maxRoomsPerConn bounds how many of these rooms one client can be in at the same time.
const maxRoomsPerConn = 10

// rooms counts the members of each room on all nodes, and stores messages in a history. Its
// methods handle messages concurrently.
type rooms struct {
	router  *router.Router
	history history

	mu    sync.Mutex
	byKey map[roomKey]connCounts // the rooms with members on this node
}

// connCounts holds the number of connections of each user in a room, on all nodes, by user name.
type connCounts map[string]int

// A roomKey includes the tenant, so that tenants cannot see each other's rooms.
type roomKey struct{ tenant, name string }

// roomPattern matches the topics of all rooms. A room's name may contain slashes, a tenant's name
// has none.
const roomPattern = "room/{tenant}/{name...}"

func (k roomKey) topic() string { return "room/" + k.tenant + "/" + k.name }

func parseTopic(topic string) roomKey {
	parts := strings.SplitN(topic, "/", 3)
	return roomKey{parts[1], parts[2]}
}

func newRooms(h history) *rooms { return &rooms{history: h, byKey: map[roomKey]connCounts{}} }

// noTenant stands for the tenant of users without one. It is not a valid name of a tenant.
const noTenant = "~"

func keyFor(c *router.Conn, name string) roomKey {
	return roomKey{cmp.Or(c.Identity().TenantID, noTenant), name}
}

// join may be called by a member to load the room again.
func (rs *rooms) join(ctx *router.Context, m JoinRoom) (RoomJoined, error) {
	key := keyFor(ctx.Conn(), m.Room)
	wasMember := ctx.Conn().Subscribed(key.topic())
	if err := rs.enter(ctx, key); err != nil {
		return RoomJoined{}, err
	}
	// The history is read for a member, so that it contains what the member does not receive, and
	// perhaps some messages that it receives as well. What another node publishes before this
	// node's subscription has reached Redis, about a round trip later, is missed by the first
	// member on this node until it loads the room again.
	messages, err := rs.history.list(ctx, key)
	if err != nil && !wasMember {
		ctx.Unsubscribe(key.topic())
	}
	return RoomJoined{m.Room, rs.users(key), messages}, err
}

// enter makes the connection a member. It returns RESOURCE_EXHAUSTED if there are maxRooms other
// rooms with members.
func (rs *rooms) enter(ctx *router.Context, key roomKey) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byKey[key] == nil && len(rs.byKey) >= maxRooms {
		return errors.Errorf(errors.ResourceExhausted, "too many rooms; try again later")
	}
	if err := ctx.Join(key.topic(), displayName(ctx.Conn())); err != nil {
		return err
	}
	rs.connCountsOf(key) // reserves the room until onPresence is called
	return nil
}

func (rs *rooms) leave(ctx *router.Context, m LeaveRoom) error {
	ctx.Unsubscribe(keyFor(ctx.Conn(), m.Room).topic())
	return nil
}

// say publishes a message once the history holds it. A member that did not receive the message
// therefore finds it there.
func (rs *rooms) say(ctx *router.Context, m Say) error {
	key, user := keyFor(ctx.Conn(), m.Room), displayName(ctx.Conn())
	if !ctx.Conn().Subscribed(key.topic()) {
		return errors.Errorf(errors.FailedPrecondition, "join the room first")
	}
	said := Said{m.Room, user, m.Text, ctx.ReceivedAt().UTC()}
	if err := rs.history.add(ctx, key, said); err != nil {
		return err
	}
	return ctx.Publish(key.topic(), said)
}

func (rs *rooms) who(ctx *router.Context, m Who) (Users, error) {
	return Users{m.Room, rs.users(keyFor(ctx.Conn(), m.Room))}, nil
}

func (rs *rooms) search(ctx *router.Context, m SearchHistory) (HistoryFound, error) {
	found := HistoryFound{m.Room, []Said{}}
	messages, err := rs.history.list(ctx, keyFor(ctx.Conn(), m.Room))
	query := strings.ToLower(m.Query)
	for _, said := range messages {
		if strings.Contains(strings.ToLower(said.Text), query) {
			found.Matches = append(found.Matches, said)
		}
	}
	return found, err
}

// onMessagesLost asks the members on this node to load the room again, because messages from
// other nodes were lost.
func (rs *rooms) onMessagesLost(topic string, _ int) {
	if topic == "" {
		return // no room: a loss of messages to single users, which the chat does not send
	}
	_ = rs.router.PublishLocal(topic, RoomStale{parseTopic(topic).name}, nil)
}

// onPresence sends the members on this node UserJoined and UserLeft. A user with several
// connections joins with the first and leaves with the last one. The router reports members
// on any node, as long as this node has members in the room.
func (rs *rooms) onPresence(e router.PresenceEvent) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, user := parseTopic(e.Topic), e.Member.Info
	byUser := rs.connCountsOf(key)
	switch {
	case e.Joined:
		byUser[user]++
		if byUser[user] == 1 {
			_ = rs.router.PublishLocal(e.Topic, UserJoined{key.name, user}, rs.router.Conn(e.Member.ConnID))
		}
	case byUser[user] > 1:
		byUser[user]--
	default:
		delete(byUser, user)
		_ = rs.router.PublishLocal(e.Topic, UserLeft{key.name, user}, nil)
		if len(byUser) == 0 {
			delete(rs.byKey, key)
		}
	}
}

// connCountsOf creates the counts of a room if there are none. The caller holds mu.
func (rs *rooms) connCountsOf(key roomKey) connCounts {
	if rs.byKey[key] == nil {
		rs.byKey[key] = connCounts{}
	}
	return rs.byKey[key]
}

// users returns the sorted names of the users in a room, on all nodes.
func (rs *rooms) users(key roomKey) []string {
	names := []string{}
	for _, m := range rs.router.Presence(key.topic()) {
		names = append(names, m.Info)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
