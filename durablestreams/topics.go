package durablestreams

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Topics returns a handler that serves topics with a History as streams, which are never closed. It panics if an
// option is missing or invalid. The router must not serve yet.
func Topics(r *router.Router, opts *Options[router.StoredMessage]) http.Handler {
	o := *opts
	o.setDefaults()
	o.mustBeValid()
	h := newHandler(r, &o)
	encode := encoder(h.format, o.Encode, encodeStored)
	h.open = func(ctx context.Context, topic string, q query) (reader, error) {
		s := &topicReader{router: r, topic: topic, encode: encode, after: q.from.at}
		_, current, err := r.ReadHistory(ctx, topic, broker.Query{})
		switch code := errors.CodeOf(err); {
		case code == errors.InvalidArgument || code == errors.FailedPrecondition: // the name of no topic with a History
			return nil, errUnknown
		case err != nil:
			return nil, err
		}
		if q.from.end {
			s.after = offset{current.Offset, current.Epoch}
		}
		return s, nil
	}
	return h
}

// encodeStored returns a message as an object with its type and its payload.
func encodeStored(m router.StoredMessage) ([]byte, error) {
	object := struct {
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload,omitempty"`
	}{Type: m.Type}
	if err := m.Decode(&object.Payload); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// historyPage is how many messages are read at once.
const historyPage = 256

// A topicReader reads the history of a topic.
type topicReader struct {
	router *router.Router
	topic  string
	encode func(router.StoredMessage) ([]byte, error)
	after  offset // the beginning if it is the zero offset

	// Of host.Host.Tail; nil before wait is called.
	next func(context.Context) ([]broker.Publication, error)
	stop func()
}

func (s *topicReader) close() {
	if s.stop != nil {
		s.stop()
	}
}

func (s *topicReader) read(ctx context.Context, maxBytes int) (page, error) {
	stored, current, err := s.router.ReadHistory(ctx, s.topic, broker.Query{After: s.after.number, Limit: historyPage})
	if err != nil {
		return page{}, err
	}
	oldest := offset{current.Offset, current.Epoch}
	if len(stored) > 0 {
		oldest.number = stored[0].Position.Offset - 1
	}
	switch {
	case s.after == offset{}:
		s.after = oldest
	case s.after.id != current.Epoch:
		return page{}, errGone
	case s.after.number > current.Offset:
		return page{}, errNotIssued
	case s.after.number < oldest.number:
		return page{}, errGone
	}
	p := page{first: s.after}
	size := 0
	for _, m := range stored {
		message, err := s.encode(m)
		if err != nil {
			return page{}, err
		}
		if size += len(message); size > maxBytes && len(p.messages) > 0 {
			break
		}
		p.messages = append(p.messages, message)
		s.after.number = m.Position.Offset
	}
	p.next = s.after
	p.upToDate = s.after.number == current.Offset
	return p, nil
}

func (s *topicReader) wait(ctx context.Context) error {
	if s.next == nil {
		s.next, s.stop = s.router.Host().Tail(s.topic, broker.Position{Epoch: s.after.id, Offset: s.after.number})
	}
	_, err := s.next(ctx) // read returns them, decoded
	return err
}
