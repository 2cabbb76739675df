package main

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

const (
	maxHistory = 100  // messages that a room keeps
	maxRooms   = 1000 // rooms in memory, including empty rooms with a history
)

// rooms holds the message history of each room and counts its members on all nodes. Its
// methods handle messages concurrently. They hold mu while they publish, so that all
// members on this node receive messages in the order of the history.
type rooms struct {
	router *router.Router

	mu    sync.Mutex
	byKey map[roomKey]*room
}

// A roomKey includes the tenant, so that tenants cannot see each other's rooms.
type roomKey struct{ tenant, name string }

// topic is unambiguous although a room's name may contain a slash: a tenant's name has none.
func (k roomKey) topic() string { return k.tenant + "/" + k.name }

func parseTopic(topic string) roomKey {
	tenant, name, _ := strings.Cut(topic, "/")
	return roomKey{tenant, name}
}

type room struct {
	connections map[string]int // by user name, on all nodes
	history     []Said
	lastActive  time.Time
}

func newRooms() *rooms { return &rooms{byKey: map[roomKey]*room{}} }

func keyFor(c *router.Conn, name string) roomKey {
	return roomKey{c.Identity().TenantID, name}
}

func (rs *rooms) join(ctx *router.Context, m JoinRoom) (RoomJoined, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key := keyFor(ctx.Conn(), m.Room)
	rm, err := rs.getOrCreate(key)
	if err != nil {
		return RoomJoined{}, err
	}
	if err := ctx.Join(key.topic(), displayName(ctx.Conn())); err != nil {
		return RoomJoined{}, err
	}
	return RoomJoined{m.Room, rs.users(key), slices.Clone(rm.history)}, nil
}

func (rs *rooms) leave(ctx *router.Context, m LeaveRoom) error {
	ctx.Unsubscribe(keyFor(ctx.Conn(), m.Room).topic())
	return nil
}

func (rs *rooms) say(ctx *router.Context, m Say) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, user := keyFor(ctx.Conn(), m.Room), displayName(ctx.Conn())
	if !ctx.Conn().Subscribed(key.topic()) {
		return errors.Errorf(errors.FailedPrecondition, "join the room first")
	}
	rm, err := rs.getOrCreate(key)
	if err != nil {
		return err
	}
	said := Said{m.Room, user, m.Text, ctx.ReceivedAt().UTC()}
	rm.history = append(rm.history, said)
	if len(rm.history) > maxHistory {
		rm.history = slices.Clone(rm.history[len(rm.history)-maxHistory:])
	}
	return ctx.Publish(key.topic(), said)
}

func (rs *rooms) who(ctx *router.Context, m Who) (Users, error) {
	return Users{m.Room, rs.users(keyFor(ctx.Conn(), m.Room))}, nil
}

func (rs *rooms) search(ctx *router.Context, m SearchHistory) (HistoryFound, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	found := HistoryFound{m.Room, []Said{}}
	rm := rs.byKey[keyFor(ctx.Conn(), m.Room)]
	if rm == nil {
		return found, nil
	}
	query := strings.ToLower(m.Query)
	for _, said := range rm.history {
		if strings.Contains(strings.ToLower(said.Text), query) {
			found.Matches = append(found.Matches, said)
		}
	}
	return found, nil
}

// onPresence sends the members on this node UserJoined and UserLeft. A user with several
// connections joins with the first and leaves with the last one. The router reports members
// on any node, as long as this node has members in the room.
func (rs *rooms) onPresence(e router.PresenceEvent) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, user := parseTopic(e.Topic), e.Member.Info
	rm, err := rs.getOrCreate(key)
	if err != nil {
		return
	}
	switch {
	case e.Joined:
		rm.connections[user]++
		if rm.connections[user] == 1 {
			_ = rs.router.PublishLocal(e.Topic, UserJoined{key.name, user}, rs.router.Conn(e.Member.ConnID))
		}
	case rm.connections[user] > 1:
		rm.connections[user]--
	default:
		delete(rm.connections, user)
		_ = rs.router.PublishLocal(e.Topic, UserLeft{key.name, user}, nil)
		rs.markInactive(key, rm)
	}
}

// markInactive deletes a room without members and history. The caller holds mu.
func (rs *rooms) markInactive(key roomKey, rm *room) {
	rm.lastActive = time.Now()
	if len(rm.connections) == 0 && len(rm.history) == 0 {
		delete(rs.byKey, key)
	}
}

// getOrCreate returns RESOURCE_EXHAUSTED if there are maxRooms rooms and all have members.
// The caller holds mu.
func (rs *rooms) getOrCreate(key roomKey) (*room, error) {
	if rm := rs.byKey[key]; rm != nil {
		return rm, nil
	}
	if len(rs.byKey) >= maxRooms && !rs.evictOldestEmpty() {
		return nil, errors.Errorf(errors.ResourceExhausted, "too many rooms; try again later")
	}
	rm := &room{connections: map[string]int{}, lastActive: time.Now()}
	rs.byKey[key] = rm
	return rm, nil
}

// evictOldestEmpty deletes the room without members that has been inactive for the longest
// time. It returns false if every room has members. The caller holds mu.
func (rs *rooms) evictOldestEmpty() bool {
	var oldest roomKey
	for key, rm := range rs.byKey {
		if len(rm.connections) == 0 && (rs.byKey[oldest] == nil || rm.lastActive.Before(rs.byKey[oldest].lastActive)) {
			oldest = key
		}
	}
	if rs.byKey[oldest] == nil {
		return false
	}
	delete(rs.byKey, oldest)
	return true
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
