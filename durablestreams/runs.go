package durablestreams

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// Runs returns a handler that serves runs as streams. A request reads the run whose ID is its parameter run, or that of
// its offset, or else the latest run of the topic. The stream is closed when the run has ended.
//
// It panics if an option is missing or invalid. The router must not serve yet.
func Runs[Item router.Message](r *router.Router, runs *run.Runs[Item], opts *Options[Item]) http.Handler {
	o := *opts
	o.setDefaults()
	o.mustBeValid()
	h := newHandler(r, &o)
	encode := encoder(h.format, o.Encode, func(item Item) ([]byte, error) { return jsonv2.Marshal(item) })
	h.open = func(ctx context.Context, topic string, q query) (reader, error) {
		if q.run != "" && q.from.at.id != "" && q.run != q.from.at.id {
			return nil, errNotIssued
		}
		from := run.From{Run: cmp.Or(q.run, q.from.at.id), Item: q.from.at.number}
		attached, err := runs.Attach(ctx, topic, from)
		switch code := errors.CodeOf(err); {
		case err == nil:
		case code == errors.NotFound && q.from.at.id != "":
			return nil, errGone
		case code == errors.NotFound || code == errors.InvalidArgument: // no topic of runs
			return nil, errUnknown
		default:
			return nil, err
		}
		s := &runReader[Item]{reader: attached, encode: encode, next: offset{q.from.at.number, attached.Info().ID}}
		if q.from.end {
			err = s.skip(ctx)
		}
		if err != nil {
			s.close()
			return nil, err
		}
		return s, nil
	}
	return h
}

// encoder returns what encodes messages. A message that is no JSON in a JSON stream is an error.
func encoder[Message any](f format, own, usual func(Message) ([]byte, error)) func(Message) ([]byte, error) {
	if own == nil {
		own = usual
	}
	return func(m Message) ([]byte, error) {
		encoded, err := own(m)
		if err == nil && f.json && !json.Valid(encoded) {
			err = errors.New("it is not valid JSON")
		}
		if err != nil {
			return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("durablestreams: Options.Encode of %T: %w", m, err)}
		}
		return encoded, nil
	}
}

// A runReader reads a run.
type runReader[Item router.Message] struct {
	reader  *run.Reader[Item]
	encode  func(Item) ([]byte, error)
	pending []run.Part[Item] // received, and not returned
	next    offset
	ended   bool // the reader has nothing more, which a failover can make less than the run had
}

func (s *runReader[Item]) close() { s.reader.Close() }

// skip continues at the end.
func (s *runReader[Item]) skip(ctx context.Context) error {
	parts, err := s.reader.Stored(ctx)
	if len(parts) > 0 {
		s.next.number = parts[len(parts)-1].Next()
	}
	return err
}

func (s *runReader[Item]) read(ctx context.Context, maxBytes int) (page, error) {
	parts, err := s.reader.Stored(ctx)
	if err != nil {
		return page{}, err
	}
	s.pending = append(s.pending, parts...)
	info := s.reader.Info()
	if info.State.Ended() && s.next.number > info.Items {
		return page{}, errNotIssued
	}
	p := page{first: s.next}
	for size := 0; len(s.pending) > 0 && size < maxBytes; {
		part := s.pending[0]
		message, err := s.encode(*part.Item)
		if err != nil {
			return page{}, err
		}
		if size += len(message); size > maxBytes && len(p.messages) > 0 {
			break
		}
		p.messages = append(p.messages, message)
		s.pending = s.pending[1:]
		s.next.number = part.Next()
	}
	p.next = s.next
	p.upToDate = len(s.pending) == 0
	p.closed = p.upToDate && (s.ended || info.State.Ended() && p.next.number == info.Items) // the last items may be on their way to this node
	return p, nil
}

func (s *runReader[Item]) wait(ctx context.Context) error {
	for part, err := range s.reader.Parts(ctx) {
		if err != nil {
			return err
		}
		s.pending = append(s.pending, part)
		return nil
	}
	s.ended = true
	return nil
}
