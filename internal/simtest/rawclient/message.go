package rawclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A Position is where a client is in the publications of a topic with a history.
type Position struct {
	Epoch  string `json:"epoch"`
	Offset uint64 `json:"offset"`
}

// A Member is present in a topic.
type Member struct {
	ConnID   string `json:"connId"`
	TenantID string `json:"tenantId"`
	UserID   string `json:"userId"`
	Info     string `json:"info"`
}

// An Error is the payload of ERROR and RPC_ERROR. RetryAfterMs is "null" if no wait can help.
type Error struct {
	Code         string          `json:"code"`
	Message      string          `json:"message,omitempty"`
	Details      json.RawMessage `json:"details,omitempty"`
	Retryable    *bool           `json:"retryable"`
	RetryAfterMs json.RawMessage `json:"retryAfterMs,omitempty"`
}

type envelope struct {
	kind    string // the type
	meta    meta
	members map[string]bool // of meta
	payload json.RawMessage
	data    json.RawMessage
}

type meta struct {
	Timestamp     *uint64 `json:"timestamp"`
	CorrelationID string  `json:"correlationId"`
	TimeoutMs     *uint64 `json:"timeoutMs"`
	Topic         *string `json:"topic"`
	Offset        uint64  `json:"offset"`
	Traceparent   string  `json:"traceparent"`
	Tracestate    string  `json:"tracestate"`
}

// A subscription is the payload of $ws:subscribe, and an element of topics in $ws:resume.
type subscription struct {
	Topic     string  `json:"topic"`
	Presence  bool    `json:"presence,omitempty"`
	Positions bool    `json:"positions,omitempty"`
	State     bool    `json:"state,omitempty"`
	Epoch     string  `json:"epoch,omitempty"`
	Offset    *uint64 `json:"offset,omitempty"`
}

type subscribed struct {
	Topic     *string         `json:"topic"`
	Members   *[]Member       `json:"members"`
	Epoch     string          `json:"epoch"`
	Offset    *uint64         `json:"offset"`
	Recovered *bool           `json:"recovered"`
	Ended     *Position       `json:"ended"`
	State     *uint64         `json:"state"`
	More      bool            `json:"more"`
	Error     json.RawMessage `json:"error"` // only in $ws:resumed
}

type moved struct {
	Topic  *string `json:"topic"`
	Epoch  string  `json:"epoch"`
	Offset *uint64 `json:"offset"`
	Lost   *struct {
		From uint64 `json:"from"`
		To   uint64 `json:"to"`
	} `json:"lost"`
	Ended *Position `json:"ended"`
	Reset bool      `json:"reset"`
}

type grant struct {
	Token          string `json:"token"`
	ResumeWithinMs *int64 `json:"resumeWithinMs"`
}

type welcome struct {
	Version               int64            `json:"version"`
	ConnID                string           `json:"connId"`
	PingIntervalMs        int64            `json:"pingIntervalMs"`
	PongTimeoutMs         int64            `json:"pongTimeoutMs"`
	MaxMessageBytes       int              `json:"maxMessageBytes"`
	MaxMessageBytesByType map[string]int   `json:"maxMessageBytesByType"`
	CallTimeoutMs         int64            `json:"callTimeoutMs"`
	CallTimeoutMsByType   map[string]int64 `json:"callTimeoutMsByType"`
	Concurrency           int              `json:"concurrency"`
	Session               *grant           `json:"session"`
}

type resumed struct {
	Session  *grant       `json:"session"`
	MemberID string       `json:"memberId"`
	Topics   []subscribed `json:"topics"`
}

// members splits a JSON object. A member that occurs twice is an error, as is text behind the object.
func members(raw []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	all := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := name.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if _, ok := all[key]; ok {
			return nil, fmt.Errorf("%q occurs twice", key)
		}
		all[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the object")
	}
	return all, nil
}

// parse decodes an envelope of the server (section 1).
func parse(raw []byte) (envelope, error) {
	top, err := members(raw)
	if err != nil {
		return envelope{}, err
	}
	e := envelope{payload: top["payload"], data: top["data"], members: map[string]bool{}}
	if err := json.Unmarshal(top["type"], &e.kind); err != nil || e.kind == "" || len(e.kind) > 128 {
		return e, fmt.Errorf("type is %s", top["type"])
	}
	inside, err := members(top["meta"])
	if err != nil {
		return e, fmt.Errorf("meta: %w", err)
	}
	for name := range inside {
		e.members[name] = true
	}
	if err := json.Unmarshal(top["meta"], &e.meta); err != nil {
		return e, fmt.Errorf("meta: %w", err)
	}
	if len(e.meta.CorrelationID) > 128 || e.meta.Topic != nil && len(*e.meta.Topic) > 256 {
		return e, errors.New("a member of meta is too long")
	}
	return e, nil
}
