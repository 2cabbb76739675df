package rawclient

import (
	"encoding/json"
	"time"
)

// start greets on a new connection, and resumes the session or subscribes again. Client.mu is held.
func (k *conn) start() {
	if k.c.cfg.Greet {
		k.hello(k.c.cfg.Session && k.c.token == "")
	}
	if k.c.token != "" {
		k.resume()
		return
	}
	k.subscribeAll()
}

func (k *conn) hello(session bool) {
	k.greet = max(k.greet, greeting)
	hello := map[string]any{"version": 1}
	if session {
		hello["session"] = true
	}
	if k.c.cfg.Trace {
		hello["trace"] = true
	}
	k.send("$ws:hello", hello, nil, &call{credits: -1})
}

// subscribeAll subscribes to what the client wants, where it has not been resumed.
func (k *conn) subscribeAll() {
	for name, t := range k.c.topics {
		switch {
		case t.wanted == nil:
			delete(k.c.topics, name)
		case t.pending == 0:
			t.on = false
			k.subscribe(t)
		}
	}
	k.replace()
}

// replace makes the connections before this one close when their calls are answered.
func (k *conn) replace() {
	for _, old := range k.c.conns {
		if old != k {
			old.leaving = true
			old.leaveLocked()
		}
	}
}

// resume presents the session with all topics.
func (k *conn) resume() {
	k.greet = max(k.greet, greeting)
	var topics []subscription
	for _, t := range k.c.topics {
		if t.ended || t.wanted == nil && !t.on && t.pos == nil && t.name == "" {
			continue
		}
		t.on, t.pending = false, t.pending+1
		topics = append(topics, t.request())
	}
	payload := map[string]any{"token": k.c.token, "topics": topics}
	k.resumes = false
	k.resuming = k.send("$ws:resume", payload, nil, &call{credits: -1, request: topics})
}

// settle takes the answer to a call of the protocol into account.
func (k *conn) settle(e envelope, o *call) {
	switch o.Type {
	case "$ws:hello":
		k.welcomed(e, o)
	case "$ws:subscribe":
		k.settleSubscribe(e, o)
	case "$ws:unsubscribe":
		if o.Err == nil && k == k.c.cur { // otherwise, another connection has the subscription
			k.checkTopic(e, o.topic.name)
			k.end(o.topic)
			if o.topic.acts = o.acts; k.running() {
				o.topic.acts = -1
			}
			k.notice(e, o.topic.name)
		}
	case "$ws:resume":
		k.resuming = ""
		if o.Err != nil {
			k.notResumed(o)
			return
		}
		k.settleResume(e, o)
	case "$ws:auth":
		if o.Err == nil {
			k.checkExpiry(e, true)
		}
	}
}

func (k *conn) welcomed(e envelope, o *call) {
	if o.Err != nil {
		return
	}
	k.greet = greeted
	var w welcome
	if json.Unmarshal(e.payload, &w) != nil || w.ConnID == "" || w.PingIntervalMs <= 0 || w.PongTimeoutMs <= 0 ||
		w.MaxMessageBytes <= 0 || w.CallTimeoutMs < 0 || w.Concurrency <= 0 || w.Version > 1 {
		k.fail("$ws:welcome is malformed: %s", e.payload)
		return
	}
	if k.welcome.ConnID != "" && k.welcome.ConnID != w.ConnID {
		k.fail("the connection is %s and was %s", w.ConnID, k.welcome.ConnID)
	}
	k.welcome = w
	k.notice(e, "")
	if w.Session == nil || !k.c.cfg.Session || k != k.c.cur || k.resuming != "" {
		return
	}
	k.checkGrant(w.Session)
	if k.c.token != w.Session.Token { // another session, because the one before has ended
		k.c.memberID = w.ConnID
	}
	k.c.token = w.Session.Token
}

func (k *conn) checkGrant(g *grant) {
	if g.Token == "" || g.ResumeWithinMs == nil || *g.ResumeWithinMs <= 0 {
		k.fail("the session has no token, or no time")
	}
}

func (k *conn) checkTopic(e envelope, name string) {
	var p struct {
		Topic *string `json:"topic"`
	}
	if json.Unmarshal(e.payload, &p) != nil || p.Topic == nil || *p.Topic != name {
		k.fail("%s for %q has the payload %s", e.kind, name, e.payload)
	}
}

func (k *conn) settleSubscribe(e envelope, o *call) {
	t := o.topic
	t.pending--
	if k != k.c.cur {
		return
	}
	if o.Err != nil {
		if !*o.Err.Retryable && !t.on {
			t.wanted = nil
		}
		return
	}
	k.checkTopic(e, t.name)
	var s subscribed
	if err := json.Unmarshal(e.payload, &s); err != nil {
		k.fail("$ws:subscribed is malformed: %s", e.payload)
		return
	}
	k.notice(e, t.name)
	k.subscribed(t, s, &o.request[0])
}

// running reports whether a handler of the application may still run for the client: the server handles
// $ws:unsubscribe after everything before it, except for calls.
func (k *conn) running() bool {
	for _, o := range k.open {
		if !o.event && !reserved(o.Type) {
			return true
		}
	}
	return false
}

// end handles the confirmed end of a subscription.
func (k *conn) end(t *topic) {
	t.on, t.pos, t.phase, t.members = false, nil, nil, nil
	t.ended = t.pending == 0
	t.acts = min(0, -k.acts) // a handler may have subscribed the client again at the same moment
	if t.ended {
		t.wanted = nil
	}
}

// settleResume handles $ws:resumed (section 12).
func (k *conn) settleResume(e envelope, o *call) {
	for _, asked := range o.request {
		k.c.topic(asked.Topic).pending--
	}
	k.greet = greeted
	var r resumed
	if json.Unmarshal(e.payload, &r) != nil || r.MemberID != k.c.memberID {
		k.fail("$ws:resumed is malformed, or of another member than %s: %s", k.c.memberID, e.payload)
		return
	}
	k.notice(e, "")
	if r.Session == nil {
		k.c.token = "" // the connection is closing
		return
	}
	k.checkGrant(r.Session)
	if r.Session.Token == k.c.token {
		k.fail("the token of the session has not changed")
	}
	k.c.token = r.Session.Token
	k.control("$ws:ack", map[string]any{"correlationId": o.ID})
	answered := map[string]bool{}
	for _, s := range r.Topics {
		if s.Topic == nil || answered[*s.Topic] {
			k.fail("$ws:resumed has a topic twice, or without a name: %s", e.payload)
			continue
		}
		answered[*s.Topic] = true
		k.resumedTopic(s, o)
	}
	for _, asked := range o.request {
		if !answered[asked.Topic] {
			k.fail("$ws:resumed does not answer the topic %q", asked.Topic)
		}
	}
	for _, t := range k.c.topics {
		if t.wanted != nil && !t.on && !t.ended && t.pending == 0 {
			k.subscribe(t)
		}
	}
	k.replace()
}

func (k *conn) resumedTopic(s subscribed, o *call) {
	var asked *subscription
	for i := range o.request {
		if o.request[i].Topic == *s.Topic {
			asked = &o.request[i]
		}
	}
	t := k.c.topic(*s.Topic)
	if len(s.Error) > 0 {
		if err := checkError(s.Error, k.fail); err.Code != "UNAVAILABLE" {
			k.end(t)
		}
		return
	}
	if asked == nil && s.Epoch != "" && (s.Recovered == nil || *s.Recovered) {
		k.fail("the topic %q, which was not presented, is recovered", t.name)
	}
	k.subscribed(t, s, asked)
}

// isResuming reports whether an answer to $ws:resume is to come, which says what holds.
func (k *conn) isResuming() bool { return k.resuming != "" || k.resumes }

// notResumed greets again, or tries again, as section 12 says.
func (k *conn) notResumed(o *call) {
	for _, asked := range o.request {
		k.c.topic(asked.Topic).pending--
	}
	if k != k.c.cur {
		return
	}
	switch o.Err.Code {
	case "ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED":
		after, _, never := o.Err.retryAfter()
		if never {
			break
		}
		k.resumes = true
		wait := after + 100*time.Millisecond + k.c.jitter(500*time.Millisecond)
		k.later(wait, func() {
			if k == k.c.cur && k.resuming == "" && k.c.token != "" {
				k.resume()
			}
			k.resumes = false
		})
		return
	}
	k.c.token = ""
	k.hello(true)
	k.subscribeAll()
}

// later calls do with Client.mu held, unless the connection ends before.
func (k *conn) later(wait time.Duration, do func()) {
	k.c.done.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			k.c.mu.Lock()
			defer k.c.mu.Unlock()
			do()
		case <-k.done:
		}
	})
}

// disconnectedLocked forgets what does not outlive a connection.
func (c *Client) disconnectedLocked() {
	for name, t := range c.topics {
		t.on, t.pending, t.members = false, 0, nil
		if t.phase != nil {
			t.pos, t.phase = nil, nil
		}
		if t.wanted == nil && (c.token == "" || t.ended) {
			delete(c.topics, name)
		}
	}
}

func (k *conn) notice(e envelope, name string) {
	k.c.notices = append(k.c.notices, Notice{Conn: k.n, Kind: e.kind, Topic: name, Payload: e.payload, At: time.Now()})
}
