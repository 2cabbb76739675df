// Package jsonplan decodes and encodes JSON (RFC 8259) by a plan, which reflection computes once for each Go type. It
// is several times as fast as the JSON library, which it never contradicts: what a plan does not know, it leaves to
// the library.
//
// A decoder reads JSON strictly and only for values that the plan knows. It fails for everything else, valid or not,
// and its caller then decodes the text with the library, whose error counts. What it accepts, the library accepts with
// the same result. An encoder appends exactly the bytes that the library writes, with the options of the router: invalid
// UTF-8 is replaced by U+FFFD, maps are sorted by key, and nothing is escaped that JSON does not require to be.
//
// A plan knows structs, also embedded ones, with the tags omitzero, omitempty and string; booleans, strings, numbers,
// []byte, time.Time, pointers, slices, arrays, and maps whose keys are strings. Within it, the library decodes and
// encodes values of types with methods for JSON or text, interfaces, other maps, types that contain themselves other than
// through a struct, and structs of which anything else is unusual: another option of a tag, a name with quotes or escapes,
// an embedded type that is no struct, more than 256 members. It also decodes the whole value if a text has members
// without a field, a member twice, names with escapes, more than 1,000 levels, or an invalid or unpaired escape.
//
// Values are read and written through unsafe pointers whose types and offsets are those of package reflect. Nothing
// that is decoded refers to the text. Plans never change and may be used concurrently.
package jsonplan

import "github.com/penstock-go/penstock/errors"

// errLeft is returned for values that are left to the JSON library. It says nothing about whether they are valid.
var errLeft = errors.New("jsonplan: left to the JSON library")

const (
	// maxDepth is how many structs, lists and maps are nested in what is encoded. The library encodes deeper values, and
	// returns an error for a value that contains itself.
	maxDepth = 100

	// maxNesting is how many objects and arrays are open at once in what is decoded. The library reads 10,000.
	maxNesting = 1000
)
