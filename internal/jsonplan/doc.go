// Package jsonplan decodes and encodes JSON as package encoding/json/v2 does, but several times as fast. A
// [Plan] is compiled once per type by reflection: it says where each member of an object is in memory, and
// values are then read and written there without reflection.
//
// A plan is strict: it decodes what it knows completely, and leaves each other text to the library, valid or
// not. Results, bytes and errors are therefore those of the library, with the options of the router: invalid
// UTF-8 is replaced by U+FFFD, maps are sorted by name, and unknown members are ignored or, if the caller
// wants that, an error. Texts that are left to the library are decoded twice: those with errors, nested more
// than 1,000 levels, or with halves of surrogate pairs.
//
// The library decodes and encodes the members of these types, and lists and maps of them. Of json.RawMessage,
// interfaces without methods, and lists and maps of them, it only encodes the members.
//   - types with methods of their own for JSON or text, except time.Time
//   - interfaces with methods
//   - maps whose keys are not strings
//   - types that contain themselves without a struct, such as type List []List
//   - structs that have no plan
//
// These structs have no plan:
//   - with more than 256 members
//   - with more than a third of their members left to the library, which is faster for the whole struct
//   - with tags that have other options than omitzero, omitempty, embed, case:strict, and string for numbers, or
//     quotes in names
//   - that embed something else than structs, or a pointer to an unexported struct, or a type with methods
//     for JSON or text
//   - with an interface that has the method IsZero and the option omitzero
//   - that the library rejects
//
// What a plan reads and writes through package unsafe is only memory that reflection gives it: fields at
// their offsets, elements within the length of a slice, and what an interface holds, which it only reads. It
// retains neither texts nor values; strings that it decodes are copies, and short ones are remembered to be
// used again.
package jsonplan
