package envelope_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
)

type tooLow struct {
	Least  int               `json:"least"`
	Note   string            `json:"note,omitzero"`
	Bids   []bid             `json:"bids"`
	Names  map[string]string `json:"names"`
	Latest *bid              `json:"latest"`
	Any    any               `json:"any"`
}

type bid struct {
	At time.Time `json:"at"`
}

// A price can only be encoded.
type price struct{}

func (p price) MarshalJSON() ([]byte, error) { return []byte(`{"cents":1}`), nil }

// A priced has what cannot be decoded.
type priced struct {
	Price price                   `json:"price"`
	Shape interface{ Area() int } `json:"shape"`
}

func TestDeclaredErrors_Mismatch(t *testing.T) {
	const bids = `"bids":[{"at":"2026-01-02T03:04:05.000Z"}],"names":{"a":"b"},"latest":null,"any":{"x":[1]}`
	for name, tt := range map[string]struct {
		code    errors.Code
		details string
		want    string
	}{
		"as declared":              {"TOO_LOW", `{"least":1,` + bids + `}`, ""},
		"optional, present":        {"TOO_LOW", `{"least":1,"note":"",` + bids + `}`, ""},
		"missing":                  {"TOO_LOW", `{` + bids + `}`, "the details of TOO_LOW are not those of the declared envelope_test.tooLow: least is missing"},
		"missing in an array":      {"TOO_LOW", `{"least":1,"bids":[{"at":"2026-01-02T03:04:05Z"},{}],"names":{},"latest":null,"any":1}`, "bids.1.at is missing"},
		"missing behind a pointer": {"TOO_LOW", `{"least":1,"bids":[],"names":{},"latest":{},"any":1}`, "latest.at is missing"},
		"none":                     {"TOO_LOW", ``, "any is missing"},
		"unknown":                  {"TOO_LOW", `{"least":1,"more":2,` + bids + `}`, "more is not a known field"},
		"another kind":             {"TOO_LOW", `{"least":"1",` + bids + `}`, "least must be an integer in range, not a string"},
		"null for an array":        {"TOO_LOW", `{"least":1,"bids":null,"names":{},"latest":null,"any":1}`, "bids must be an array"},
		"null for a map":           {"TOO_LOW", `{"least":1,"bids":[],"names":null,"latest":null,"any":1}`, "names must be an object"},
		"without a type":           {"LATE", `{"least":1}`, ""},
		"not declared":             {"FOO", ``, "the code FOO is not declared"},
		"standard":                 {errors.Unavailable, `{"kind":"rate"}`, ""},
		"declared standard":        {errors.NotFound, `{}`, "any is missing"},
		"only encoded":             {"PRICED", `{"price":{"cents":1},"shape":{"radius":2}}`, ""},
		"encodes itself":           {"PRICE", `{"cents":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			declared := envelope.DeclaredErrors{
				"TOO_LOW": reflect.TypeFor[tooLow](), "LATE": nil, errors.NotFound: reflect.TypeFor[tooLow](),
				"PRICED": reflect.TypeFor[priced](), "PRICE": reflect.TypeFor[price](),
			}
			var details []byte
			if tt.details != "" {
				details = []byte(tt.details)
			}
			got := declared.Mismatch(tt.code, details)
			if tt.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.Contains(t, got, tt.want)
		})
	}
	assert.Empty(t, envelope.DeclaredErrors{}.Mismatch("FOO", nil), "the route declares nothing")
}
