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

// rooms holds what was said, and who is where on all nodes. It does everything under
// one lock, publishing included, so that all members of a room see one order, and a
// history that fits what they see.
type rooms struct {
	router *router.Router

	mu    sync.Mutex
	rooms map[roomKey]*room
}

// A roomKey keeps the rooms of tenants apart.
type roomKey struct{ tenant, name string }

// topic cannot be forged: a tenant's name has no slash.
func (k roomKey) topic() string { return k.tenant + "/" + k.name }

func keyOfTopic(topic string) roomKey {
	tenant, name, _ := strings.Cut(topic, "/")
	return roomKey{tenant, name}
}

type room struct {
	members map[string]int // how many connections of each user have entered
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
	key := keyOf(ctx.Conn(), m.Room)
	rm, err := rs.open(key)
	if err != nil {
		return RoomJoined{}, err
	}
	if err := ctx.Join(key.topic(), userOf(ctx.Conn())); err != nil {
		return RoomJoined{}, err
	}
	return RoomJoined{m.Room, rs.users(key), slices.Clone(rm.history)}, nil
}

func (rs *rooms) leave(ctx *router.Context, m LeaveRoom) error {
	ctx.Unsubscribe(keyOf(ctx.Conn(), m.Room).topic())
	return nil
}

// onMember tells the members here who came and who has gone, wherever they are.
func (rs *rooms) onMember(e router.PresenceEvent) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, user := keyOfTopic(e.Topic), e.Member.Info
	rm, err := rs.open(key)
	if err != nil {
		return
	}
	switch {
	case e.Joined:
		rm.members[user]++
		if rm.members[user] == 1 {
			_ = rs.router.PublishLocal(e.Topic, UserJoined{key.name, user}, rs.router.Conn(e.Member.ConnID))
		}
	case rm.members[user] > 1:
		rm.members[user]--
	default:
		delete(rm.members, user)
		_ = rs.router.PublishLocal(e.Topic, UserLeft{key.name, user}, nil)
		rs.close(key, rm)
	}
}

// close forgets a room that holds nothing.
func (rs *rooms) close(key roomKey, rm *room) {
	rm.used = time.Now()
	if len(rm.members) == 0 && len(rm.history) == 0 {
		delete(rs.rooms, key)
	}
}

// open returns a room, which may be new.
func (rs *rooms) open(key roomKey) (*room, error) {
	if rm := rs.rooms[key]; rm != nil {
		return rm, nil
	}
	if len(rs.rooms) >= mostRooms && !rs.forgetOne() {
		return nil, errors.Errorf(errors.ResourceExhausted, "there are too many rooms")
	}
	rm := &room{members: map[string]int{}, used: time.Now()}
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

func (rs *rooms) say(ctx *router.Context, m Say) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, user := keyOf(ctx.Conn(), m.Room), userOf(ctx.Conn())
	if !ctx.Conn().Subscribed(key.topic()) {
		return errors.Errorf(errors.FailedPrecondition, "join the room first")
	}
	rm, err := rs.open(key)
	if err != nil {
		return err
	}
	said := Said{m.Room, user, m.Text, ctx.ReceivedAt().UTC()}
	rm.history = append(rm.history, said)
	if len(rm.history) > mostHistory {
		rm.history = slices.Clone(rm.history[len(rm.history)-mostHistory:])
	}
	return ctx.Publish(key.topic(), said)
}

func (rs *rooms) who(ctx *router.Context, m Who) (Users, error) {
	return Users{m.Room, rs.users(keyOf(ctx.Conn(), m.Room))}, nil
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
func (rs *rooms) users(key roomKey) []string {
	names := []string{}
	for _, m := range rs.router.Presence(key.topic()) {
		names = append(names, m.Info)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
