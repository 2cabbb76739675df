package interop_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-playground/validator/v10"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// The code up to TestValidator_CodeIsThatOfTheGuide is that of docs/guides/validation.md.

// validateWith returns a function for router.Options.Validate that reports all violations of the
// tags of a message, with the names that the fields have in JSON. Messages that are no structs
// have no tags.
func validateWith(v *validator.Validate) func(message any) error {
	v.RegisterTagNameFunc(jsonName)
	return func(message any) error {
		t := reflect.TypeOf(message)
		if t.Kind() != reflect.Struct {
			return nil
		}
		err := v.Struct(message)
		violations, ok := errors.AsType[validator.ValidationErrors](err)
		if !ok {
			return err
		}
		all := make([]error, len(violations))
		for i, violation := range violations {
			path := strings.TrimPrefix(violation.Namespace(), t.Name()+".")
			all[i] = errors.InvalidField(fieldPath(path), reason(violation))
		}
		return errors.Join(all...)
	}
}

// embedded is the name of a field that is not an object of its own in JSON.
const embedded = "\x00"

// jsonName returns the name of a field in JSON, or "" for its name in Go.
func jsonName(field reflect.StructField) string {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case name == "" && (field.Anonymous || options == "embed"):
		return embedded
	case name == "-":
		return ""
	default:
		return name
	}
}

// fieldPath returns a path of the validator, a[0].b, as the router writes it: a.0.b.
func fieldPath(path string) string {
	path = strings.ReplaceAll(path, embedded+".", "")
	return strings.NewReplacer("].", ".", "][", ".", "[", ".", "]", "").Replace(path)
}

// reason describes a violation for the client. It does not contain the value.
func reason(violation validator.FieldError) string {
	switch tag, param := violation.Tag(), violation.Param(); {
	case tag == "required":
		return "must not be empty"
	case tag == "oneof":
		return "must be one of " + param
	case param != "":
		return "must satisfy " + tag + "=" + param
	default:
		return "must satisfy " + tag
	}
}

func newRouterWithValidator() *router.Router {
	v := validator.New(validator.WithRequiredStructEnabled())
	must(v.RegisterValidation("roomname", func(field validator.FieldLevel) bool {
		return strings.HasPrefix(field.Field().String(), "#")
	}))
	return router.New(&router.Options{Validate: validateWith(v)})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestValidator_CodeIsThatOfTheGuide(t *testing.T) {
	source, err := os.ReadFile("validator_test.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "// validateWith")
	code, _, _ = strings.Cut(code, "func TestValidator_CodeIsThatOfTheGuide")
	guide, err := os.ReadFile("../../docs/guides/validation.md")
	require.NoError(t, err)
	assert.Contains(t, string(guide), strings.TrimSpace(code))
}

// Order has fields at every kind of place.
type Order struct {
	Audit

	Room     string             `json:"room" validate:"required,roomname"`
	Customer Customer           `json:"customer"`
	Items    []Item             `json:"items" validate:"min=1,dive"`
	Tags     [][]string         `json:"tags,omitempty" validate:"dive,dive,max=3"`
	Prices   map[string]Item    `json:"prices" validate:"dive,keys,max=3,endkeys"`
	Next     *Order             `json:"next,omitzero"`
	State    string             `validate:"omitempty,oneof=open closed"` // its name in JSON is State
	Named    NamedAudit         `json:"named"`
	Hidden   string             `json:"-" validate:"max=0"`
	Deep     map[string][]*Item `json:"deep" validate:"dive,dive"`
}

// Audit is embedded, so its fields are those of the order.
type Audit struct {
	By string `json:"by" validate:"max=3"`
}

type NamedAudit struct {
	Audit `json:"audit"`
}

type Customer struct {
	Email string `json:"email" validate:"omitempty,email"`
}

type Item struct {
	Count int `json:"count" validate:"gte=1"`
}

func (Order) MessageType() string { return "ORDER" }

// A Page is a generic message, whose name contains dots.
type Page[T any] struct {
	First T `json:"first"`
}

func (Page[T]) MessageType() string { return "PAGE" }

// Words is a message that is no struct.
type Words []string

func (Words) MessageType() string { return "WORDS" }

func TestValidator_ViolationsReachTheClientWithJSONNames(t *testing.T) {
	type fields = map[string]string
	const room = `"room":"#go","items":[{"count":1}]`
	for _, tt := range []struct {
		message string
		want    fields
	}{
		{`"ORDER","payload":{` + room + `}`, nil},
		{`"ORDER","payload":{}`, fields{"room": "must not be empty", "items": "must satisfy min=1"}},
		{`"ORDER","payload":{"room":"go","items":[{"count":1}]}`, fields{"room": "must satisfy roomname"}},
		{
			`"ORDER","payload":{` + room + `,"customer":{"email":"x"},"by":"anna"}`,
			fields{"by": "must satisfy max=3", "customer.email": "must satisfy email"},
		},
		{
			`"ORDER","payload":{"room":"#go","items":[{"count":1},{"count":-1},{}]}`,
			fields{"items.1.count": "must satisfy gte=1", "items.2.count": "must satisfy gte=1"},
		},
		{`"ORDER","payload":{` + room + `,"tags":[["a"],["b","long"]]}`, fields{"tags.1.1": "must satisfy max=3"}},
		{
			`"ORDER","payload":{` + room + `,"prices":{"go":{"count":0},"c.d":{"count":0}}}`,
			fields{"prices.go.count": "must satisfy gte=1", "prices.c.d.count": "must satisfy gte=1"},
		},
		{`"ORDER","payload":{` + room + `,"prices":{"long":{"count":1}}}`, fields{"prices.long": "must satisfy max=3"}},
		{
			`"ORDER","payload":{` + room + `,"next":{` + room + `,"by":"anna","State":"x"}}`,
			fields{"next.by": "must satisfy max=3", "next.State": "must be one of open closed"},
		},
		{`"ORDER","payload":{` + room + `,"named":{"audit":{"by":"anna"}}}`, fields{"named.audit.by": "must satisfy max=3"}},
		{`"ORDER","payload":{` + room + `,"deep":{"a":[{"count":1},{"count":0}]}}`, fields{"deep.a.1.count": "must satisfy gte=1"}},
		{`"PAGE","payload":{"first":{"count":0}}`, fields{"first.count": "must satisfy gte=1"}},
		{`"WORDS","payload":[""]`, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRouterWithValidator()
			router.On(r, func(ctx *router.Context, _ Order) error { return ctx.Send(Client{}) })
			router.On(r, func(ctx *router.Context, _ Page[Item]) error { return ctx.Send(Client{}) })
			router.On(r, func(ctx *router.Context, _ Words) error { return ctx.Send(Client{}) })
			conn := routertest.Dial(t, r)
			conn.SendText(`{"type":` + tt.message + `}`)
			if tt.want == nil {
				routertest.Receive[Client](conn)
				return
			}
			failed := routertest.ReceiveError(conn)
			require.Equal(t, errors.InvalidArgument, failed.Code)
			assert.Equal(t, tt.want, fieldsOf(t, failed), tt.message)
		})
	}
}

// fieldsOf returns the reasons of the fields that an error names.
func fieldsOf(t *testing.T, failed *errors.Error) map[string]string {
	details := errors.DetailsOf[errors.FieldDetails](failed)
	if details.Fields == nil {
		return map[string]string{details.Field: details.Reason}
	}
	found := map[string]string{}
	for _, named := range details.Fields {
		found[named.Field] = named.Reason
		assert.Contains(t, failed.Message, named.Field+" "+named.Reason)
	}
	return found
}

// TestValidator_ManyViolations sends more invalid items than the answer lists.
func TestValidator_ManyViolations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouterWithValidator()
		router.On(r, func(*router.Context, Order) error { return nil })
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"ORDER","payload":{"room":"#go","items":[{}` + strings.Repeat(",{}", 8_999) + `]}}`)
		failed := routertest.ReceiveError(conn)
		require.Equal(t, errors.InvalidArgument, failed.Code)
		assert.Len(t, errors.DetailsOf[errors.FieldDetails](failed).Fields, 32)
		assert.True(t, strings.HasSuffix(failed.Message, "; and more"))
	})
}
