// Package jsoncode has the functions that code written by the command jsoncode calls. It is for
// generated code; applications call the methods DecodeJSON and AppendJSON of their types.
//
// A [Scanner] reads JSON (RFC 8259) strictly and only for values that generated code knows. It
// fails for everything else, valid or not, and generated code then returns [ErrFallback], so that
// the router decodes the payload with its JSON library. What generated code accepts, the library
// accepts with the same result. Functions named Append write exactly the bytes that the library
// writes, with the options of the router: invalid UTF-8 is replaced by U+FFFD, maps are sorted by
// key, and nothing is escaped that JSON does not require to be.
//
// Nothing uses reflection, except what is left to the library ([Scanner.Value], [AppendValue]) and
// [IsZero]. Nothing is allocated but the decoded strings and lists themselves. No function retains
// its arguments.
package jsoncode

import "github.com/penstock-go/penstock/errors"

// ErrFallback is returned for values that generated code leaves to the JSON library. It says
// nothing about whether they are valid.
var ErrFallback = errors.New("jsoncode: left to the JSON library")

// MaxDepth is how often a type that contains itself is nested in what generated code encodes. The
// library encodes deeper values, and returns an error for a value that contains itself.
const MaxDepth = 100

// maxNesting is how many objects and arrays are open at once in what a Scanner reads. The library
// reads 10,000.
const maxNesting = 1000
