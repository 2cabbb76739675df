package envelope

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// DeclaredErrors are the codes that a route declares, with the types of their details, or nil.
type DeclaredErrors map[errors.Code]reflect.Type

// Add adds a code with the type of its details, or returns why they cannot be those of a route.
func (d DeclaredErrors) Add(code errors.Code, details reflect.Type) error {
	if details == nil || details.Kind() != reflect.Struct && details.Kind() != reflect.Map {
		return fmt.Errorf("its details are a %v; they must be a struct or a map, because they are a JSON object", details)
	}
	switch code {
	case errors.InvalidArgument, errors.FailedPrecondition, errors.Canceled, errors.DeadlineExceeded, errors.ResourceExhausted,
		errors.Unavailable, errors.Aborted, errors.Internal:
		return errors.New("the router or a client library may end a call with this code, without these details; declare a code of your own")
	}
	if err := CheckEncodable(details); err != nil {
		return fmt.Errorf("%v cannot be encoded as JSON: %w", details, err)
	}
	d[code] = details
	return nil
}

// Mismatch says how an error of the route is not as declared, or returns "". The details are JSON, or
// nil. Any route may answer with the standard codes, and one that declares no errors with any code.
func (d DeclaredErrors) Mismatch(code errors.Code, details []byte) string {
	typ, declared := d[code]
	switch {
	case len(d) == 0, !declared && code.IsStandard(), declared && typ == nil:
		return ""
	case !declared:
		return fmt.Sprintf("the code %s is not declared", code)
	}
	if details == nil {
		details = []byte("{}")
	}
	if problem := misfit(typ, details); problem != "" {
		return fmt.Sprintf("the details of %s are not those of the declared %v: %s", code, typ, problem)
	}
	return ""
}

// EncodeDetails encodes the details of an error for clients; nil if they have no members. Their methods may
// panic.
func EncodeDetails(details any) (jsonv2.Value, error) {
	// The encoder bounds the depth of nesting, and so do decoders of clients. The details are
	// sent inside a payload inside an envelope, so they are encoded below as many levels here,
	// and one more.
	text, err := MarshalJSON([1][1][1]any{{{details}}})
	if err != nil {
		return nil, fmt.Errorf("router: encode the details of an error: %w", err)
	}
	text = text[len("[[[") : len(text)-len("]]]")]
	switch {
	case string(text) == "null", string(text) == "{}":
		return nil, nil
	case text[0] != '{':
		return nil, fmt.Errorf("router: the details of an error are a %T, which is no JSON object; they must be a struct or a map", details)
	}
	return text, nil
}

// misfit says how JSON differs from what values of a type are encoded as, or returns "". It decodes the JSON
// and encodes the result, which must have the same members: the type may always encode one that the JSON lacks.
// Values of interfaces, and of types that decode themselves, are not compared if they cannot be decoded.
func misfit(typ reflect.Type, text []byte) string {
	value := reflect.New(typ)
	if err := jsonplan.Of(typ).Unmarshal(text, value.Interface(), true); err != nil {
		if wrong, ok := errors.AsType[*jsonv2.SemanticError](err); ok && wrong.GoType != nil && (wrong.GoType.Kind() == reflect.Interface || jsonplan.HasMethods(wrong.GoType)) {
			return ""
		}
		e, _ := errors.AsType[*errors.Error](decodeError(err))
		return e.Message
	}
	again, err := MarshalJSON(value.Elem().Interface())
	if err != nil {
		return ""
	}
	var sent, full any
	if jsonplan.Unmarshal(text, &sent) != nil || jsonplan.Unmarshal(again, &full) != nil {
		return ""
	}
	return missing("", sent, full)
}

// missing says what of full a value lacks, or returns "".
func missing(path string, sent, full any) string {
	switch full := full.(type) {
	case map[string]any:
		object, ok := sent.(map[string]any)
		if !ok {
			return path + " must be an object"
		}
		for _, name := range slices.Sorted(maps.Keys(full)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			if _, ok := object[name]; !ok {
				return at + " is missing"
			}
			if problem := missing(at, object[name], full[name]); problem != "" {
				return problem
			}
		}
	case []any:
		array, ok := sent.([]any)
		if !ok {
			return path + " must be an array"
		}
		for i := range min(len(array), len(full)) {
			if problem := missing(path+"."+strconv.Itoa(i), array[i], full[i]); problem != "" {
				return problem
			}
		}
	}
	return ""
}
