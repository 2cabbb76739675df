package router_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestTopic_MistakesPanicAtStartUp(t *testing.T) {
	topic := func(pattern string) func() { return func() { router.Topic(router.New(nil), pattern, nil) } }
	both := func(one, other string) func() {
		return func() {
			r := router.New(nil)
			router.Topic(r, one, nil)
			router.Topic(r, other, nil)
		}
	}
	for _, tt := range []struct {
		name string
		do   func()
		want []string
	}{
		{"no router", func() { router.Topic(nil, "room/{id}", nil) }, []string{"topic_options_test.go:", `the router of topic pattern "room/{id}" is nil`}},
		{"an empty pattern", topic(""), []string{"topic_options_test.go:", `topic pattern "" is malformed: it must have 1 to 256 bytes, not 0`}},
		{"a long pattern", topic(strings.Repeat("x", 257)), []string{"it must have 1 to 256 bytes, not 257"}},
		{"a control character", topic("room/\n"), []string{`"room/\n" is malformed: it must be UTF-8 without control characters`}},
		{"invalid UTF-8", topic("room/\xff"), []string{"it must be UTF-8"}},
		{"a leading slash", topic("/room"), []string{"a segment is empty"}},
		{"a trailing slash", topic("room/"), []string{"a segment is empty"}},
		{"an empty segment", topic("room//x"), []string{"a segment is empty"}},
		{"text before a wildcard", topic("room-{id}"), []string{`the wildcard in "room-{id}" must be a whole segment`}},
		{"text after a wildcard", topic("{id}x"), []string{`the wildcard in "{id}x" must be a whole segment`}},
		{"an open wildcard", topic("room/{id"), []string{`the wildcard in "{id" must be a whole segment`}},
		{"a wildcard without a name", topic("room/{}"), []string{"{} must be a Go identifier"}},
		{"a rest without a name", topic("room/{...}"), []string{"{...} must be a Go identifier"}},
		{"the end of ServeMux", topic("room/{$}"), []string{"{$} must be a Go identifier"}},
		{"a name that is no identifier", topic("room/{room-id}"), []string{"{room-id} must be a Go identifier"}},
		{"a wildcard twice", topic("{id}/x/{id}"), []string{`the wildcard "id" occurs twice`}},
		{"a rest before the end", topic("{path...}/x"), []string{"{path...} must be the last segment"}},
		{"a parameter as in Express", topic("room/:id"), []string{`"room/:id" is malformed: a wildcard is written {id}, not :id`}},
		{"an asterisk", topic("room/*"), []string{`"room/*" is malformed: "*" is no wildcard; write {name} for one segment, or {name...} at the end`}},
		{"an asterisk in a segment", topic("room.*/x"), []string{`"room.*" is no wildcard`}},
		{"the wildcards of MQTT", topic("room/+"), []string{`"+" is no wildcard`}},
		{"the rest of MQTT", topic("room/#"), []string{`"#" is no wildcard`}},
		{"the same pattern twice", both("room/{id}", "room/{name}"), []string{
			`"room/{name}", registered at `, `conflicts with pattern "room/{id}", registered at `, "topic_options_test.go:", `both match the same names, such as "room/name"`,
		}},
		{"overlapping patterns", both("room/{id}", "{kind}/lobby"), []string{
			`"{kind}/lobby", registered at `, `conflicts with pattern "room/{id}", registered at `, `both match "room/lobby", and neither is more specific`,
		}},
		{"an overlapping rest", both("room/{rest...}", "{kind}/{id}"), []string{`both match "room/id", and neither`}},
		{"an unknown policy", func() { router.Topic(router.New(nil), "room/{id}", &router.TopicOptions{SlowConsumer: 9}) }, []string{
			`TopicOptions.SlowConsumer of "room/{id}", registered at `, "is 9; it must be Disconnect",
		}},
		{"a negative number", func() { router.Topic(router.New(nil), "room/{id}", &router.TopicOptions{MaxPerConn: -1}) }, []string{
			`TopicOptions.MaxPerConn of "room/{id}", registered at `, "is -1; it must not be negative",
		}},
		{"a negative number of replicas", func() {
			router.Topic(router.New(nil), "room/{id}", &router.TopicOptions{History: router.History{Messages: 1, Durability: broker.Durability{Replicas: -1}}})
		}, []string{`TopicOptions of "room/{id}", registered at `, "Durability.Replicas is -1; it must not be negative"}},
		{"a change while serving", func() {
			r := router.New(nil)
			routertest.Dial(t, r)
			router.Topic(r, "room/{id}", nil)
		}, []string{"Topic called after the router began to serve"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				assert.True(t, strings.HasPrefix(text, "router: "), "panicked with %q", text)
				for _, want := range tt.want {
					assert.Contains(t, text, want)
				}
			}()
			tt.do()
		})
	}
}

// TestTopic_LiteralsMayContainColons has names that other libraries do not take for wildcards either.
func TestTopic_LiteralsMayContainColons(t *testing.T) {
	r := router.New(nil)
	for _, pattern := range []string{"user:42", "a/b:c/{id}", "::", "c++/x"} {
		assert.NotPanics(t, func() { router.Topic(r, pattern, nil) })
	}
}

func TestTopic_OptionsAreCopied(t *testing.T) {
	r, opts := router.New(nil), &router.TopicOptions{Authorize: permit}
	router.Topic(r, "room/{id}", opts)
	opts.Authorize = nil
	assert.Nil(t, routertest.Subscribe(routertest.Dial(t, r), "room/go"))
}

// permit is an Authorize that permits everything.
func permit(*router.Context, router.TopicMatch) error { return nil }

func TestTopicMatch_ZeroHasNoValues(t *testing.T) {
	assert.Empty(t, router.TopicMatch{}.Value("rest"))
}
