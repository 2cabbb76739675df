package load

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type (
	Say  struct{ Text string }
	Said struct {
		Text  string
		Other bool
	}
)

func (Say) MessageType() string  { return "SAY" }
func (Said) MessageType() string { return "SAID" }

// room returns a router with a topic of which publish is called for each message.
func room(topic *router.TopicOptions, publish func(*router.Context, Say) error) *router.Router {
	r := router.New(nil)
	topic.Authorize = func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(r, "room", topic)
	router.On(r, publish)
	return r
}

func reachOptions(url string) Options {
	o := options(url)
	o.Message, o.Event, o.Topic = Message{"SAY", `{"Text":"a {{mark}}"}`}, true, "room"
	return o
}

var withHistory = router.History{Messages: 1000, Age: time.Hour}

func TestReach_CountsOnlyOwnMessagesByTheirMarks(t *testing.T) {
	t.Parallel()
	r := room(&router.TopicOptions{}, func(ctx *router.Context, m Say) error {
		return errors.Join(ctx.Publish("room", Said{Text: m.Text}), ctx.Publish("room", Said{Text: "load-other-1-", Other: true}))
	})
	o := reachOptions(serve(t, r))
	o.Warmup = 100 * time.Millisecond
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.EqualValues(t, 50, report.Answered, "events are answered by acknowledgments")
	assert.LessOrEqual(t, report.Reach.Latency.P999, report.Reach.Latency.Max)
	assert.Positive(t, report.Reach.Latency.P50)
	report.Reach.Latency = Percentiles{}
	assert.Equal(t, &Reach{Rule: "marks", Expected: 200, Received: 200}, report.Reach)
}

func TestReach_LostAndRepeatedMessages(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	r := room(&router.TopicOptions{}, func(ctx *router.Context, m Say) error {
		switch n.Add(1) {
		case 1:
			return nil // accepted and not published
		case 2:
			return errors.Errorf(errors.FailedPrecondition, "after the acknowledgment")
		case 3:
			return errors.Join(ctx.Publish("room", Said{Text: m.Text}), ctx.Publish("room", Said{Text: m.Text}))
		default:
			return ctx.Publish("room", Said{Text: m.Text})
		}
	})
	o := reachOptions(serve(t, r))
	o.Timeout = 2 * time.Second // the connections wait for the message that is not published
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"FAILED_PRECONDITION": 1}, report.Rejected)
	assert.EqualValues(t, 49, report.Answered)
	report.Reach.Latency = Percentiles{}
	assert.Equal(t, &Reach{Rule: "marks", Expected: 49 * 4, Received: 48 * 4, Duplicates: 4}, report.Reach)
}

func TestReach_SendersThatReceiveNoCopyAreNotExpectedTo(t *testing.T) {
	t.Parallel()
	r := room(&router.TopicOptions{}, func(ctx *router.Context, m Say) error {
		return ctx.Publish("room", Said{Text: m.Text}, router.Except(ctx.Conn()))
	})
	report, err := Run(t.Context(), reachOptions(serve(t, r)))
	require.NoError(t, err)
	assert.EqualValues(t, 150, report.Reach.Expected)
	assert.EqualValues(t, 150, report.Reach.Received)
}

func TestReach_CountsThePublicationsOfAllByTheirPositions(t *testing.T) {
	t.Parallel()
	for name, except := range map[string]bool{"all": false, "except the sender": true} {
		t.Run(name, func(t *testing.T) {
			r := room(&router.TopicOptions{History: withHistory}, ignore)
			other := make(chan struct{})
			router.RPC(r, func(ctx *router.Context, m Ask) (Ask, error) {
				var opts []router.PublishOption
				if except {
					opts = append(opts, router.Except(ctx.Conn()))
				}
				if m.N == 10 {
					close(other)
				}
				return m, ctx.Publish("room", Said{Text: "no mark"}, opts...)
			})
			go func() {
				<-other
				for range 30 {
					_ = r.Publish("room", Said{Other: true})
				}
			}()
			o := options(serve(t, r))
			o.Topic = "room"
			report, err := Run(t.Context(), o)
			require.NoError(t, err)
			want := int64(4 * (50 + 30))
			if except {
				want -= 50
			}
			assert.Equal(t, &Reach{Rule: "positions", Expected: want, Received: want}, report.Reach)
		})
	}
}

func ignore(*router.Context, Say) error { return nil }

func TestReach_LostConnectionsHaveNotReceivedTheRest(t *testing.T) {
	t.Parallel()
	r := room(&router.TopicOptions{History: withHistory}, ignore)
	router.RPC(r, func(ctx *router.Context, m Ask) (Ask, error) {
		if m.N == 20 {
			ctx.Conn().Close(4000, "enough")
		}
		return m, ctx.Publish("room", Said{})
	})
	o := options(serve(t, r))
	o.Topic = "room"
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assertMissing(t, report)
}

// assertMissing checks the reach of four connections of which one was lost for a while. A call that
// has crossed its close frame may have been published.
func assertMissing(t *testing.T, report *Report) {
	expected := report.Reach.Expected
	assert.Zero(t, expected%4)
	assert.GreaterOrEqual(t, expected, 4*report.Answered)
	assert.LessOrEqual(t, expected, 4*report.Sent)
	assert.Less(t, report.Reach.Received, expected, "a connection is missing what was published while it was lost")
	assert.GreaterOrEqual(t, report.Reach.Received, expected/4*3)
}

func TestReach_NeedsMarksOrPositions(t *testing.T) {
	t.Parallel()
	o := options(serve(t, room(&router.TopicOptions{}, ignore)))
	o.Topic = "room"
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, errNoPositions)

	o.Topic = "other"
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "$ws:subscribe: NOT_FOUND: ")
}

func TestOffsets_CountEachPublicationOnce(t *testing.T) {
	o := offsets{last: 3}
	for _, offset := range []int64{4, 5, 5, 4, 8} {
		o.receive(offset)
	}
	o.move(10, false) // 9 and 10 are those of the connection itself
	o.move(12, true)  // 11 and 12 are lost
	o.receive(13)
	assert.Equal(t, offsets{last: 13, received: ranges{{4, 5}, {8, 8}, {13, 13}}, own: ranges{{9, 10}}, duplicates: 2}, o)
	assert.EqualValues(t, 2, o.received.within(4, 8))
	assert.EqualValues(t, 4, o.received.within(0, 100))
	assert.Zero(t, o.received.within(13, 13))
}
