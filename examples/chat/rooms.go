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
	mostHistory = 100  // messages that a room remembers
	mostRooms   = 1000 // rooms, those that are only remembered included
)

// rooms holds who is where and what was said. It does everything under one
// lock, publishing included, so that all members of a room see one order, and
// a history that fits what they see.
type rooms struct {
	publish func(topic string, m router.Message) error

	mu    sync.Mutex
	rooms map[roomKey]*room
}

// A roomKey keeps the rooms of tenants apart.
type roomKey struct{ tenant, name string }

// topic cannot be forged: a tenant's name has no slash.
func (k roomKey) topic() string { return k.tenant + "/" + k.name }

type room struct {
	members map[string][]*router.Conn // by user, who may have several connections
	history []Said
	used    time.Time
}

func newRooms() *rooms { return &rooms{rooms: map[roomKey]*room{}} }

func keyOf(c *router.Conn, name string) roomKey {
	return roomKey{c.Identity().TenantID, name}
}

func (rs *rooms) join(ctx *router.Context, m JoinRoom) (RoomJoined, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	conn, user := ctx.Conn(), userOf(ctx.Conn())
	key := keyOf(conn, m.Room)
	rm, err := rs.open(key)
	if err != nil {
		return RoomJoined{}, err
	}
	if err := ctx.Subscribe(key.topic()); err != nil {
		return RoomJoined{}, err
	}
	if !slices.Contains(rm.members[user], conn) {
		rm.members[user] = append(rm.members[user], conn)
	}
	if len(rm.members[user]) == 1 {
		err = ctx.PublishOthers(key.topic(), UserJoined{m.Room, user})
	}
	return RoomJoined{m.Room, rm.users(), slices.Clone(rm.history)}, err
}

// open returns a room, which may be new.
func (rs *rooms) open(key roomKey) (*room, error) {
	if rm := rs.rooms[key]; rm != nil {
		return rm, nil
	}
	if len(rs.rooms) >= mostRooms && !rs.forgetOne() {
		return nil, errors.Errorf(errors.ResourceExhausted, "there are too many rooms")
	}
	rm := &room{members: map[string][]*router.Conn{}}
	rs.rooms[key] = rm
	return rm, nil
}

// forgetOne drops the empty room that was left longest ago.
func (rs *rooms) forgetOne() bool {
	var oldest roomKey
	for key, rm := range rs.rooms {
		if len(rm.members) == 0 && (rs.rooms[oldest] == nil || rm.used.Before(rs.rooms[oldest].used)) {
			oldest = key
		}
	}
	if rs.rooms[oldest] == nil {
		return false
	}
	delete(rs.rooms, oldest)
	return true
}

func (rs *rooms) leave(ctx *router.Context, m LeaveRoom) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key := keyOf(ctx.Conn(), m.Room)
	ctx.Unsubscribe(key.topic())
	return rs.remove(key, ctx.Conn())
}

// leaveAll takes an ended connection out of its rooms.
func (rs *rooms) leaveAll(c *router.Conn, _ router.CloseError) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for key := range rs.rooms {
		_ = rs.remove(key, c) // these messages can be encoded
	}
}

func (rs *rooms) remove(key roomKey, c *router.Conn) error {
	rm, user := rs.rooms[key], userOf(c)
	if rm == nil || !slices.Contains(rm.members[user], c) {
		return nil
	}
	rm.members[user] = slices.DeleteFunc(rm.members[user], func(other *router.Conn) bool { return other == c })
	if len(rm.members[user]) > 0 {
		return nil
	}
	delete(rm.members, user)
	rm.used = time.Now()
	if len(rm.members) == 0 && len(rm.history) == 0 {
		delete(rs.rooms, key)
	}
	return rs.publish(key.topic(), UserLeft{key.name, user})
}

func (rs *rooms) say(ctx *router.Context, m Say) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, user := keyOf(ctx.Conn(), m.Room), userOf(ctx.Conn())
	rm := rs.rooms[key]
	if rm == nil || !slices.Contains(rm.members[user], ctx.Conn()) {
		return errors.Errorf(errors.FailedPrecondition, "join the room first")
	}
	said := Said{m.Room, user, m.Text, ctx.ReceivedAt().UTC()}
	rm.history = append(rm.history, said)
	if len(rm.history) > mostHistory {
		rm.history = slices.Clone(rm.history[len(rm.history)-mostHistory:])
	}
	return ctx.Publish(key.topic(), said)
}

func (rs *rooms) who(ctx *router.Context, m Who) (Users, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	found := Users{m.Room, []string{}}
	if rm := rs.rooms[keyOf(ctx.Conn(), m.Room)]; rm != nil {
		found.Users = rm.users()
	}
	return found, nil
}

func (rs *rooms) search(ctx *router.Context, m SearchHistory) (HistoryFound, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	found := HistoryFound{m.Room, []Said{}}
	rm := rs.rooms[keyOf(ctx.Conn(), m.Room)]
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

// users returns the names of who is there, sorted.
func (rm *room) users() []string {
	names := make([]string, 0, len(rm.members))
	for name := range rm.members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
