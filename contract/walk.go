package contract

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A walker builds the schemas of Go types. It reports all mistakes, not only the first one.
type walker struct {
	opts *Options
	sent bool // clients send what is walked now

	defs map[reflect.Type]*jsonschema.Schema // of types with a definition
	refs map[*jsonschema.Schema]reflect.Type // schemas whose Ref is set when all names are known
	errs []error

	unions   []variants
	comments comments
}

// A place is where a type occurs.
type place struct {
	message string
	path    string // of fields in Go
	quoted  bool   // the option string applies: numbers are in strings
	safe    bool   // the tag contract:"safe" applies
}

func (at place) field(name string) place {
	at.path += "." + name
	return at
}

func (at place) String() string {
	if at.path == "" {
		return at.message
	}
	return at.message + ": field " + strings.TrimPrefix(at.path, ".")
}

func newWalker(opts *Options) *walker {
	return &walker{opts: opts, sent: true, defs: map[reflect.Type]*jsonschema.Schema{}, refs: map[*jsonschema.Schema]reflect.Type{}, comments: comments{read: opts.Comments}}
}

// root returns the schema of a payload.
func (w *walker) root(message string, t reflect.Type) *jsonschema.Schema {
	if t.Kind() == reflect.Pointer { // a message is not nil
		t = t.Elem()
	}
	return w.walk(t, place{message: message})
}

// fail records a mistake.
func (w *walker) fail(at place, t reflect.Type, format string, args ...any) *jsonschema.Schema {
	w.errs = append(w.errs, fmt.Errorf("contract: %s: %v %s", at, t, fmt.Sprintf(format, args...)))
	return &jsonschema.Schema{}
}

// walk returns the schema of a type: a reference, if the type has a definition.
func (w *walker) walk(t reflect.Type, at place) *jsonschema.Schema {
	if !hasDefinition(t, w.opts) {
		return w.build(t, at)
	}
	if at.quoted {
		return w.fail(at, t, "is not encoded as a number; remove the option string from its tag")
	}
	if _, ok := w.defs[t]; !ok {
		def := &jsonschema.Schema{}
		w.defs[t] = def // before build, because the type may contain itself
		*def = *w.build(t, place{message: at.message, path: at.path})
		if text, ok := callMethod(t, "Description"); ok && def.Description == "" && !embedsMethod(t, "Description") {
			def.Description = text
		}
		if def.Description == "" {
			def.Description = w.comments.ofType(t)
		}
	}
	ref := &jsonschema.Schema{}
	w.refs[ref] = t
	return ref
}

// build returns the schema of a type, without the reference to its own definition.
func (w *walker) build(t reflect.Type, at place) *jsonschema.Schema {
	if text, ok := schemaOf(t, w.opts); ok {
		return w.parseSchema(text, t, at)
	}
	if at.quoted && !isNumber(indirect(t)) {
		return w.fail(at, t, "is not encoded as a number; remove the option string from its tag")
	}
	switch {
	case t == timeType:
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case t == durationType:
		return w.fail(at, t, "has no JSON form; write an integer with the unit in its name, such as TimeoutMs int")
	case isRawJSON(t):
		return &jsonschema.Schema{}
	case hasEnum(t):
		return w.enum(t, at)
	case implementsAny(t, jsonMethods...):
		return w.fail(at, t, "encodes itself; give it a method JSONSchema() string that returns its JSON Schema, or set Options.Schemas")
	case implementsAny(t, textMarshalers...):
		if w.sent && !implementsAny(t, textUnmarshaler) {
			return w.fail(at, t, "has MarshalText and clients send it; give it a method UnmarshalText, too")
		}
		return &jsonschema.Schema{Type: "string"}
	case implementsAny(t, textUnmarshaler):
		return w.fail(at, t, "has UnmarshalText without MarshalText, so it is read and written differently; give it both")
	default:
		return w.buildKind(t, at)
	}
}

func (w *walker) buildKind(t reflect.Type, at place) *jsonschema.Schema {
	switch t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}
	case reflect.Pointer:
		return nullable(w.walk(t.Elem(), at))
	case reflect.Slice, reflect.Array:
		return w.list(t, at)
	case reflect.Map:
		return w.dictionary(t, at)
	case reflect.Struct:
		return w.object(t, at)
	case reflect.Interface:
		return w.union(t, at)
	default:
		if isNumber(t) {
			return w.number(t, at)
		}
		return w.fail(at, t, "has no JSON form; leave the field out with the tag json:\"-\"")
	}
}

func (w *walker) list(t reflect.Type, at place) *jsonschema.Schema {
	at.path += "[]"
	if elem := t.Elem(); elem.Kind() == reflect.Uint8 && elem.PkgPath() == "" {
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64", Pattern: base64Pattern}
	}
	s := &jsonschema.Schema{Type: "array", Items: w.walk(t.Elem(), at)}
	if t.Kind() == reflect.Array {
		n := t.Len()
		s.MinItems, s.MaxItems = &n, &n
	}
	return s
}

func (w *walker) dictionary(t reflect.Type, at place) *jsonschema.Schema {
	at.path += "[]"
	s := &jsonschema.Schema{Type: "object", AdditionalProperties: w.walk(t.Elem(), at)}
	switch key := t.Key(); {
	case isNumber(key) && !implementsAny(key, marshalers...):
		s.PropertyNames = quotedNumber(key)
	case hasEnum(key):
		s.PropertyNames = w.walk(key, place{message: at.message, path: at.path})
	case implementsAny(key, jsonMethods...), key.Kind() != reflect.String && !implementsAny(key, textMarshalers...):
		return w.fail(at, t, "has keys that are no strings in JSON; use keys of a string, integer or text type")
	}
	return s
}

func (w *walker) object(t reflect.Type, at place) *jsonschema.Schema {
	fields, rest, err := fieldsOf(t)
	if err != nil {
		return w.fail(at, t, "cannot be encoded as JSON: %v", err)
	}
	s := &jsonschema.Schema{Type: "object"}
	if t.NumField() == 0 {
		s.Extra = map[string]any{closedKeyword: 0}
	}
	for _, f := range fields {
		in := at.field(f.Name)
		tag := f.Tag.Get("contract")
		in.quoted, in.safe = f.json.Quoted, tag == "safe"
		constant, isConstant := strings.CutPrefix(tag, "const=")
		if tag != "" && tag != "safe" && !isConstant {
			w.fail(in, f.Type, "has the tag contract:%q; the values are safe, and const= with a text", tag)
		}
		typ := f.Type
		if typ.Kind() == reflect.Pointer && typ.Name() == "" && (f.json.OmitZero || f.json.OmitEmpty) {
			typ = typ.Elem() // nil is omitted, so it is never null
		}
		member := w.walk(typ, in)
		if isConstant {
			member = w.constant(constant, typ, in)
		}
		if text := cmp.Or(f.Tag.Get("description"), w.comments.ofField(t, f)); text != "" {
			member.Description = text
		}
		if s.Properties == nil {
			s.Properties = map[string]*jsonschema.Schema{}
		}
		s.Properties[f.json.Name] = member
		if !f.mayBeOmitted() {
			s.Required = append(s.Required, f.json.Name)
		}
	}
	if rest != nil {
		s.AdditionalProperties = &jsonschema.Schema{}
		if rest.Kind() == reflect.Map {
			s.AdditionalProperties = w.walk(rest.Elem(), at.field("*"))
		}
	}
	return s
}

func (w *walker) number(t reflect.Type, at place) *jsonschema.Schema {
	kind := t.Kind()
	if at.quoted {
		return quotedNumber(t)
	}
	if kind == reflect.Float32 || kind == reflect.Float64 {
		return &jsonschema.Schema{Type: "number"}
	}
	s := &jsonschema.Schema{Type: "integer"}
	unsigned := kind >= reflect.Uint && kind <= reflect.Uintptr
	if unsigned {
		s.Minimum = new(0.0)
	}
	switch kind {
	case reflect.Int, reflect.Uint: // every size is practical; who counts beyond 2^53 has an int64
		if at.safe {
			safeRange(s, unsigned)
		}
	case reflect.Int64, reflect.Uint64:
		if !at.safe {
			return w.fail(at, t, `exceeds what JavaScript can represent; add the option string to its json tag, or contract:"safe" if it stays within ±(2^53-1), or make it an int32`)
		}
		safeRange(s, unsigned)
	default:
		bits := t.Bits()
		if unsigned {
			s.Maximum = new(float64(uint64(1)<<bits - 1))
		} else {
			s.Minimum, s.Maximum = new(-float64(uint64(1)<<(bits-1))), new(float64(uint64(1)<<(bits-1)-1))
		}
	}
	return s
}

// maxSafe is Number.MAX_SAFE_INTEGER of JavaScript.
const maxSafe = 1<<53 - 1

func safeRange(s *jsonschema.Schema, unsigned bool) {
	s.Maximum = new(float64(maxSafe))
	if !unsigned {
		s.Minimum = new(float64(-maxSafe))
	}
}

// Patterns of strings. TypeScript has types for some of them.
const (
	base64Pattern   = `^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	integerPattern  = `^(?:0|-?[1-9][0-9]*)$`
	unsignedPattern = `^(?:0|[1-9][0-9]*)$`
	numberPattern   = `^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`
)

// quotedNumber returns the schema of a number in a string.
func quotedNumber(t reflect.Type) *jsonschema.Schema {
	pattern := integerPattern
	switch kind := t.Kind(); {
	case kind == reflect.Float32 || kind == reflect.Float64:
		pattern = numberPattern
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		pattern = unsignedPattern
	}
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

// enum returns the schema of a type whose method Enum returns all values.
func (w *walker) enum(t reflect.Type, at place) *jsonschema.Schema {
	values := enumOf(t)
	if values.Len() == 0 {
		return w.fail(at, t, "has a method Enum that returns no values")
	}
	s := &jsonschema.Schema{}
	for i := range values.Len() {
		text, err := jsonv2.Marshal(values.Index(i).Interface())
		if err != nil {
			return w.fail(at, t, "has a method Enum whose value %d cannot be encoded: %v", i, err)
		}
		var value any
		if err := jsonv2.Unmarshal(text, &value); err != nil {
			return w.fail(at, t, "has a method Enum whose value %d cannot be encoded: %v", i, err)
		}
		s.Enum = append(s.Enum, value)
	}
	if _, ok := s.Enum[0].(string); ok {
		s.Type = "string"
	}
	if !w.sent {
		s.Extra = map[string]any{openKeyword: true}
	}
	return s
}

// parseSchema returns a schema that the application has written.
func (w *walker) parseSchema(text string, t reflect.Type, at place) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	if err := jsonv2.Unmarshal([]byte(text), s); err != nil {
		return w.fail(at, t, "has a JSON Schema that cannot be decoded: %v", err)
	}
	if _, err := s.CloneSchemas().Resolve(nil); err != nil {
		return w.fail(at, t, "has an invalid JSON Schema: %v", err)
	}
	return s
}

// nullable returns a schema that also accepts null.
func nullable(s *jsonschema.Schema) *jsonschema.Schema {
	null := &jsonschema.Schema{Type: "null"}
	switch {
	case s.Type != "" && len(s.Enum) == 0:
		s.Types, s.Type = []string{s.Type, "null"}, ""
		return s
	case slices.Contains(s.Types, "null"):
		return s
	case len(s.AnyOf) > 0 && s.AnyOf[len(s.AnyOf)-1].Type == "null":
		return s
	default: // a reference, or a schema of the application, or one that accepts everything
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, null}}
	}
}

// finish returns the definitions and the names of their types, or all mistakes.
func (w *walker) finish() (map[string]*jsonschema.Schema, map[reflect.Type]string, error) {
	for _, u := range w.unions {
		w.checkDiscriminator(u)
	}
	names, err := nameTypes(w.defs)
	if err := errors.Join(append(w.errs, err)...); err != nil {
		return nil, nil, err
	}
	defs := map[string]*jsonschema.Schema{}
	for t, def := range w.defs {
		defs[names[t]] = def
	}
	return defs, names, nil
}

//nolint:gochecknoglobals // never changed
var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
)
