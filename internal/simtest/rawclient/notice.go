package rawclient

import (
	"encoding/json"
	"time"
)

// event handles a message of the protocol without an ID.
func (k *conn) event(e envelope) {
	switch e.kind {
	case "ERROR":
		checkError(e.payload, k.fail)
		k.notice(e, "")
		if k.garbage > 0 {
			k.garbage--
		} else if k.anonymous--; k.anonymous < 0 {
			k.fail("an ERROR answers no message: %s", e.payload)
		}
	case "__heartbeat_ack":
		if k.beats--; k.beats < 0 {
			k.fail("a heartbeat is acknowledged that was not sent")
		}
	case "$ws:identity-expiring":
		k.onlyGreeted(e)
		k.notice(e, "")
		k.checkExpiry(e, false)
	case "$ws:goaway":
		k.goaway(e)
	case "$ws:position":
		k.moved(e)
	case "$ws:presence":
		k.presence(e)
	case "$ws:subscribed", "$ws:unsubscribed", "$ws:state":
		k.topicNotice(e)
	default:
		k.fail("%s without an ID is not known", e.kind)
	}
}

func (k *conn) onlyGreeted(e envelope) {
	if k.greet == notGreeted {
		k.fail("%s before the greeting", e.kind)
	}
}

func (k *conn) checkExpiry(e envelope, optional bool) {
	var p struct {
		ExpiresInMs *int64 `json:"expiresInMs"`
	}
	if json.Unmarshal(e.payload, &p) != nil || p.ExpiresInMs == nil && !optional || p.ExpiresInMs != nil && *p.ExpiresInMs <= 0 {
		k.fail("%s is malformed: %s", e.kind, e.payload)
	}
}

func (k *conn) goaway(e envelope) {
	var p struct {
		ReconnectAfterMs *int64 `json:"reconnectAfterMs"`
	}
	k.onlyGreeted(e)
	k.notice(e, "")
	if json.Unmarshal(e.payload, &p) != nil || p.ReconnectAfterMs == nil || *p.ReconnectAfterMs < 0 {
		k.fail("$ws:goaway is malformed: %s", e.payload)
		return
	}
	k.later(time.Duration(*p.ReconnectAfterMs)*time.Millisecond, func() {
		if k == k.c.cur && !k.c.moving && k.c.ctx.Err() == nil {
			k.c.moving = true
			k.c.done.Go(k.c.run)
		}
	})
}

// topicNotice handles what the server says about a subscription without having been asked.
func (k *conn) topicNotice(e envelope) {
	var s subscribed
	if json.Unmarshal(e.payload, &s) != nil || s.Topic == nil {
		k.fail("%s is malformed: %s", e.kind, e.payload)
		return
	}
	k.notice(e, *s.Topic)
	if k != k.c.cur || k.isResuming() {
		return // the answer to $ws:resume says what holds
	}
	t := k.c.topic(*s.Topic)
	switch {
	case e.kind == "$ws:subscribed":
		if k.c.token == "" && k.greet != greeting {
			k.fail("the client without a session is notified of %q", t.name)
		}
		k.subscribed(t, s, nil)
	case e.kind == "$ws:unsubscribed" && len(s.Error) == 0:
		k.onlyGreeted(e)
		k.end(t)
	case e.kind == "$ws:unsubscribed":
		checkError(s.Error, k.fail)
		if t.pending > 0 {
			return
		}
		if t.phase == nil {
			k.fail("the state of %q is complete, and cannot be completed", t.name)
		}
		k.end(t)
	case t.phase == nil || !t.phase.more || t.phase.left > 0:
		k.fail("$ws:state of %q, which waits for %+v", t.name, t.phase)
	default:
		t.phase = nil
	}
}
