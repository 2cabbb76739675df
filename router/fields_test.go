package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// invalidFields returns n errors that name a field.
func invalidFields(n int, reason string) (all []error) {
	for i := range n {
		all = append(all, errors.InvalidField(fmt.Sprintf("f%d", i), reason))
	}
	return all
}

// field is an element of details.fields as a client decodes it.
func field(name, reason string) any { return map[string]any{"field": name, "reason": reason} }

func TestInvalidFields_ReachTheClientTogether(t *testing.T) {
	private := errors.New("private")
	withCause := errors.InvalidField("b", "is taken")
	withCause.Err = private
	hidesField := errors.InvalidField("b", "is bad")
	hidesField.Err = errors.InvalidField("secret", "of the cause")
	again := errors.InvalidField("a", "is bad")
	ownList := errors.InvalidField("a", "is bad")
	ownList.Details = errors.FieldDetails{Field: "a", Reason: "is bad", Fields: []errors.FieldDetails{{Field: "mine"}}}
	more := errors.InvalidField("b", "is short")
	more.Details = struct {
		errors.FieldDetails

		Min int `json:"min"`
	}{errors.FieldDetails{Field: "b", Reason: "is short"}, 3}

	a := func() error { return errors.InvalidField("a", "is bad") }
	b := func() error { return errors.InvalidField("b", "is bad") }
	both := map[string]any{"field": "a", "reason": "is bad", "fields": []any{field("a", "is bad"), field("b", "is bad")}}
	onlyA := map[string]any{"field": "a", "reason": "is bad"}
	for name, tt := range map[string]struct {
		err      error
		message  string
		details  any // nil: none
		reported bool
	}{
		"one":               {err: a(), message: "a is bad", details: onlyA},
		"one joined":        {err: errors.Join(nil, a(), nil), message: "a is bad", details: onlyA},
		"one twice":         {err: errors.Join(again, again), message: "a is bad", details: onlyA},
		"joined":            {err: errors.Join(a(), b()), message: "a is bad; b is bad", details: both},
		"wrapped":           {err: fmt.Errorf("x: %w", errors.Join(errors.New("y"), a(), fmt.Errorf("z: %w", b()))), message: "a is bad; b is bad", details: both},
		"nested":            {err: errors.Join(errors.Join(a()), errors.Join(errors.Join(b()))), message: "a is bad; b is bad", details: both},
		"wraps itself":      {err: errors.Join(a(), b(), selfWrapping{}), message: "a is bad; b is bad; and more", details: both},
		"cause is private":  {err: errors.Join(a(), hidesField), message: "a is bad; b is bad", details: both, reported: true},
		"other code":        {err: errors.Join(a(), errors.Errorf(errors.NotFound, "no")), message: "a is bad", details: onlyA},
		"details are of a":  {err: errors.Join(a(), &errors.Error{Code: errors.InvalidArgument, Message: "general"}, b()), message: "a is bad; b is bad", details: both},
		"own list":          {err: errors.Join(ownList, b()), message: "a is bad", details: map[string]any{"field": "a", "reason": "is bad", "fields": []any{map[string]any{"field": "mine"}}}},
		"nil among them":    {err: errors.Join(a(), noError(), b()), message: "a is bad; b is bad", details: both},
		"field of a later":  {err: errors.Join(&errors.Error{Code: errors.InvalidArgument, Message: "general"}, b()), message: "general"},
		"cause is reported": {err: errors.Join(a(), withCause), message: "a is bad; b is taken", details: map[string]any{"field": "a", "reason": "is bad", "fields": []any{field("a", "is bad"), field("b", "is taken")}}, reported: true},
		"other details":     {err: errors.Join(more, a()), message: "b is short", details: map[string]any{"field": "b", "reason": "is short", "min": 3.0}},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var reports recorder[error]
			r := router.New(&router.Options{
				OnError:  func(report router.ErrorReport) { reports.add(report.Err) },
				Validate: func(any) error { return tt.err },
			})
			router.RPC(r, echo)
			got := routertest.CallError(routertest.Dial(t, r), Echo{})
			assert.Equal(t, &errors.Error{Code: errors.InvalidArgument, Message: tt.message, Details: tt.details}, got)
			synctest.Wait()
			assert.Equal(t, tt.reported, len(reports.all()) == 1)
		})
	}
}

func TestInvalidFields_AreBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, tt := range map[string]struct {
		errs   []error
		listed int
		more   bool
	}{
		"at the limit":    {invalidFields(32, "is bad"), 32, false},
		"over the limit":  {invalidFields(33, "is bad"), 32, true},
		"many":            {invalidFields(100_000, "is bad"), 32, true},
		"long reasons":    {invalidFields(32, long), 3, true},
		"long first":      {append(invalidFields(1, strings.Repeat("x", 10_000)), invalidFields(2, "is bad")...), 3, false},
		"far apart":       {append(append(invalidFields(1, "is bad"), make([]error, 999)...), invalidFields(2, "is bad")...), 3, false},
		"behind too many": {append(append(invalidFields(2, "is bad"), otherErrors(1000)...), invalidFields(2, "is bad")...), 2, true},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Validate: func(any) error { return manyErrors(func() []error { return tt.errs }) }}))
			router.RPC(r, echo)
			got := routertest.CallError(routertest.Dial(t, r), Echo{})
			require.Equal(t, errors.InvalidArgument, got.Code)
			assert.Len(t, errors.DetailsOf[errors.FieldDetails](got).Fields, tt.listed)
			assert.Equal(t, tt.listed-1, strings.Count(got.Message, "; f"))
			assert.Equal(t, tt.more, strings.HasSuffix(got.Message, "; and more"))
		})
	}
}

func otherErrors(n int) (all []error) {
	for range n {
		all = append(all, errors.New("other"))
	}
	return all
}

// Nested has fields at every kind of place in a payload.
type Nested struct {
	Text  string               `json:"text"`
	Users []struct{ N int }    `json:"users"`
	Rooms map[string]NestedOne `json:"rooms"`
	Any   any                  `json:"any"`
}

type NestedOne struct {
	Title string `json:"title"`
}

func (Nested) MessageType() string { return "NESTED" }

func TestRejectUnknownFields_NamesTheField(t *testing.T) {
	for _, tt := range []struct{ typ, payload, field string }{
		{"NESTED", `{"text":"x","users":[{"N":1}],"rooms":{"go":{"title":"x"}},"any":{"y":1}}`, ""},
		{"NESTED", `{"txet":"x"}`, "txet"},
		{"NESTED", `{"Text":"x"}`, "Text"},
		{"NESTED", `{"":"x"}`, ""},
		{"NESTED", `{"users":[{"N":1},{"n":1}]}`, "users.1.n"},
		{"NESTED", `{"rooms":{"go":{"title":"x","titel":"x"}}}`, "rooms.go.titel"},
		{"NOTHING", `{}`, ""},
		{"NOTHING", ``, ""},
		{"NOTHING", `null`, ""},
		{"NOTHING", `{"x":1}`, "x"},
	} {
		for _, reject := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r := router.New(&router.Options{RejectUnknownFields: reject})
				router.On(r, func(ctx *router.Context, _ Nested) error { return ctx.Send(Nothing{}) })
				router.On(r, func(ctx *router.Context, _ Nothing) error { return ctx.Send(Nothing{}) })
				conn := routertest.Dial(t, r)
				payload := ""
				if tt.payload != "" {
					payload = `,"payload":` + tt.payload
				}
				// The envelope has unknown members, which are always ignored.
				conn.SendText(fmt.Sprintf(`{"type":%q,"meta":{"trace":1},"x":2%s}`, tt.typ, payload))
				if !reject || tt.field == "" && tt.payload != `{"":"x"}` {
					routertest.Receive[Nothing](conn)
					return
				}
				got := routertest.ReceiveError(conn)
				assert.Equal(t, tt.field+" is not a known field", got.Message)
				assert.Equal(t, map[string]any{"field": tt.field, "reason": "is not a known field"}, got.Details, tt.payload)
			})
		}
	}
}
