package simtest

import (
	"slices"
	"strings"

	"github.com/penstock-go/penstock/client"
)

// Rooms have presence: when all is quiet, all clients and all nodes know the same members, which are those who are
// subscribed, unless all their subscriptions are hidden.
func presenceFeature() feature {
	return feature{check: (*world).checkPresence}
}

func (s *watch) onPresence(joined, left []client.Member, reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.life.device.world
	if reset {
		s.members, s.hasMembers = map[string]client.Member{}, true
	}
	for _, m := range left {
		if _, ok := s.members[m.ConnID]; !ok && !reset {
			w.Errorf("client %d: %s has left %s without having joined", s.life.device.index, m.UserID, s.topic)
		}
		delete(s.members, m.ConnID)
	}
	for _, m := range joined {
		s.members[m.ConnID] = m
	}
}

func (w *world) checkPresence() {
	for _, topic := range []string{"room/1", "room/2"} {
		present := map[*life]bool{}
		for _, s := range w.watches() {
			if s.topic == topic && s.alive() && !s.hidden {
				present[s.life] = true
			}
		}
		var want []string
		for l := range present {
			want = append(want, l.device.User)
		}
		if w.rawUnaware(topic) {
			continue
		}
		want = append(want, w.rawPresent(topic)...)
		slices.Sort(want)
		if topic == "room/2" { // all connections of a user are one member
			want = slices.Compact(want)
		}
		w.checkMembers(topic, want)
		w.checkRawMembers(topic, want)
	}
}

func (w *world) checkMembers(topic string, want []string) {
	for _, s := range w.watches() {
		if s.topic != topic || !s.alive() {
			continue
		}
		s.mu.Lock()
		var got []string
		for _, m := range s.members {
			got = append(got, m.UserID)
		}
		s.mu.Unlock()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			w.Errorf("client %d: the members of %s are %s; they should be %s", s.life.device.index, topic, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
}
