package simtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/simtest/rawclient"
)

// checkRaw compares what raw clients have received with what was published. That positions have no gaps without a notice, and
// that nothing follows the end of a subscription, they check themselves.
func (w *world) checkRaw() {
	for _, d := range record[*rawRecord](w).devices {
		members := map[string]int{}
		for i, c := range d.all() {
			name := fmt.Sprintf("raw client %d.%d (%s)", d.index, i, d.User)
			c.Quiet()
			w.checkRawDeliveries(name, d, c)
			w.checkRawNotices(name, c)
			w.checkRawOutcomes(name, d, c)
			w.checkRawPositions(name, d, c)
			if id, ok := c.Session(); ok && c.Topic("").Subscribed {
				members[id]++
			}
		}
		for id, n := range members {
			if n > 1 {
				w.Errorf("raw clients %d: %d connections have the session %s", d.index, n, id)
			}
		}
	}
}

// A rawItem is the payload of a publication, or of a message to the user.
type rawItem struct {
	ID string `json:"id"`
}

// checkRawDeliveries checks that each publication of a topic with positions arrives once, as it was published, and nothing of a
// topic whose access has ended.
func (w *world) checkRawDeliveries(name string, d *rawDevice, c *rawclient.Client) {
	seen := map[string]bool{}
	for _, m := range c.Deliveries() {
		var it rawItem
		if err := json.Unmarshal(m.Payload, &it); err != nil {
			w.Errorf("%s: received %s", name, m.Payload)
			continue
		}
		switch {
		case m.Type == "LETTER":
			w.checkRawLetter(name, d, it.ID)
			continue
		case m.Topic == nil: // the client has not greeted
			w.checkRawUnmarked(name, it.ID)
			continue
		}
		w.checkRawPublication(name, *m.Topic, it.ID, m)
		if m.Position.Epoch != "" && !m.State {
			if seen[it.ID] && w.calm() { // with faults, a client that subscribes again may receive it again
				w.Errorf("%s: received %s of %s twice", name, it.ID, *m.Topic)
			}
			seen[it.ID] = true
		}
		w.checkRawAccess(name, d, *m.Topic, it.ID, m)
	}
}

func (w *world) checkRawPublication(name, topic, id string, m rawclient.Delivery) {
	w.mu.Lock()
	p := w.byID[id]
	w.mu.Unlock()
	switch {
	case p == nil || p.topic != topic:
		w.Errorf("%s: received %q of %s, which was not published there", name, id, topic)
	case !p.mayExist():
		w.Errorf("%s: received %s of %s, though publishing it failed with %v", name, id, topic, p.err)
	case m.Position.Epoch != "":
		_, all := w.truth(topic).copies(id)
		if !slices.ContainsFunc(all, func(at broker.Position) bool {
			return at.Offset == m.Position.Offset && w.sameEpoch(at.Epoch, m.Position.Epoch)
		}) {
			w.Errorf("%s: received %s of %s at %v; it was stored at %v", name, id, topic, m.Position, all)
		}
	}
}

func (w *world) checkRawUnmarked(name, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[id] == nil {
		w.Errorf("%s: received %q, which was not published", name, id)
	}
}

func (w *world) checkRawLetter(name string, d *rawDevice, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range record[*usersRecord](w).sent {
		if m.id == id && m.user == d.User {
			return
		}
	}
	w.Errorf("%s: received %q, which was not sent to the user", name, id)
}

// checkRawAccess checks that a publication did not arrive after Revoke had returned.
func (w *world) checkRawAccess(name string, d *rawDevice, topic, id string, m rawclient.Delivery) {
	if !w.calm() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range record[*usersRecord](w).revocations {
		if v.user != d.User || v.topic != topic || v.err != nil || v.ended.IsZero() {
			continue
		}
		if m.At.Sub(v.ended) > calmAccessTime && (v.granted.IsZero() || m.At.Before(v.granted)) {
			w.Errorf("calm: %s: received %s of %s %v after Revoke has returned", name, id, topic, m.At.Sub(v.ended))
		}
	}
}

// checkRawNotices checks that nothing is reported as lost without a fault.
func (w *world) checkRawNotices(name string, c *rawclient.Client) {
	if !w.calm() {
		return
	}
	for _, n := range c.Notices() {
		var p struct {
			Lost, Ended json.RawMessage
			Reset       bool
		}
		if n.Kind != "$ws:position" || strings.HasPrefix(n.Topic, "short/") || json.Unmarshal(n.Payload, &p) != nil {
			continue
		}
		if p.Lost != nil || p.Ended != nil || p.Reset {
			w.Errorf("calm: %s: a loss is reported: %s", name, n.Payload)
		}
	}
}

// checkRawOutcomes compares answers with executions.
func (w *world) checkRawOutcomes(name string, d *rawDevice, c *rawclient.Client) {
	for _, o := range c.Outcomes() {
		if o.Type != "WORK" {
			continue
		}
		var reply rawItem
		switch {
		case !o.Done:
			w.Errorf("%s: the call %s has no outcome", name, o.ID)
		case o.Lost && d.Greet && w.calm() && !w.wasDisconnected(d.User, o.Sent, o.At):
			w.Errorf("calm: %s: the call %s, sent at %v, was lost with its connection", name, o.ID, o.Sent.Sub(w.began))
		case o.Err == nil && !o.Lost && (json.Unmarshal(o.Payload, &reply) != nil || w.executionsOf(reply.ID) != 1):
			w.Errorf("%s: the call %s has the reply %s, and was handled %d times", name, o.ID, o.Payload, w.executionsOf(reply.ID))
		}
	}
}

// checkRawPositions checks that a client has reached the last publication of each topic of which it has a position.
func (w *world) checkRawPositions(name string, d *rawDevice, c *rawclient.Client) {
	for _, topic := range w.cluster.Store.Topics() {
		if strings.HasPrefix(topic, "$") || !strings.Contains(topic, "/") {
			continue
		}
		if !d.Greet && w.wasRevoked(d.User, topic) {
			continue // it does not learn of that
		}
		t := c.Topic(topic)
		if last := w.truth(topic).lastOffset(); t.Subscribed && t.Position != nil && t.Position.Offset != last {
			w.Errorf("%s: has reached %v of %s, and the last publication has the offset %d", name, *t.Position, topic, last)
		}
	}
}

// rawPresent returns the users of raw clients that are subscribed to a topic.
func (w *world) rawPresent(topic string) (users []string) {
	for _, d := range record[*rawRecord](w).devices {
		for _, c := range d.all() {
			if c.Topic(topic).Subscribed {
				users = append(users, d.User)
			}
		}
	}
	return users
}

// rawUnaware reports whether a raw client that has not greeted is subscribed to a topic: it does not learn that its user has lost
// access.
func (w *world) rawUnaware(topic string) bool {
	for _, d := range record[*rawRecord](w).devices {
		for _, c := range d.all() {
			if !d.Greet && c.Topic(topic).Subscribed {
				return true
			}
		}
	}
	return false
}

// checkRawMembers compares the members that raw clients know with those that are present.
func (w *world) checkRawMembers(topic string, want []string) {
	for _, d := range record[*rawRecord](w).devices {
		for i, c := range d.all() {
			t := c.Topic(topic)
			if !t.Subscribed || t.Members == nil {
				continue
			}
			var got []string
			for _, m := range t.Members {
				got = append(got, m.UserID)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				w.Errorf("raw client %d.%d: the members of %s are %s; they should be %s", d.index, i, topic, strings.Join(got, " "), strings.Join(want, " "))
			}
		}
	}
}

func (w *world) executionsOf(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.executions[id]
}
