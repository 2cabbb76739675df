// Package contract writes down what a router and its clients must agree on: as types for TypeScript,
// Python and Kotlin, as an AsyncAPI 3 document, and as a JSON Schema.
//
//	c, err := contract.New(r.Describe(), nil)
//	...
//	os.WriteFile("web/src/contract.ts", c.TypeScript(), 0o644)
//
// Package contracttest compares committed files with the router in a test, and [Handler] serves the
// contract for the command penstock.
//
// # Types
//
// The schemas describe the JSON that the router reads and writes: encoding/json/v2 with its default
// options.
//
//   - A field is required, unless it has the option omitzero, or omitempty and an encoding that can be
//     empty: omitempty does nothing for numbers, booleans and times.
//   - A pointer can be null. With omitzero or omitempty, a pointer is left out instead.
//   - A nil slice is [] and a nil map is {}. []byte is base64, also as an array. The keys of maps are
//     strings, even if they are numbers in Go.
//   - time.Time is an RFC 3339 string. Types with MarshalText are strings. any, json.RawMessage and
//     jsontext.Value are unknown.
//   - Named structs, and types with values or a schema of their own, have a definition. Its name is that
//     of the Go type: Page[Said] is PageOfSaid. If packages have types of the same name, all of them
//     begin with the name of their package.
//
// Types have more to say by these methods and tags, none of which needs an import:
//
//   - The tag description of a field, and the method Description() string of a type, explain. The method
//     of an embedded struct does not count.
//   - The tag contract:"safe" of a field promises that 64-bit integers are between -(2^53-1) and 2^53-1,
//     which every client can represent.
//   - The tag contract:"const=circle" of a text says that it always has this value. Structs that are variants of
//     one interface must have such a field, with the same name, so that clients can tell them apart.
//   - The method Enum returns all values of a type as a slice: of the type itself, or of strings.
//   - The method JSONSchema() string returns the schema of a type that encodes itself.
//
// A type without a defined JSON form is an error, which says where it occurs and what to write instead:
// see [New].
package contract
