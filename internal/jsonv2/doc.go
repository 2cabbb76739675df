// Package jsonv2 selects the JSON library: encoding/json/v2 and
// encoding/json/jsontext of the standard library where it has them, which is
// from Go 1.27 on, and github.com/go-json-experiment/json otherwise, which is
// the same code as a module. No other package imports either of them.
//
// The package exports only what the project uses. No type of this package may
// appear in the exported API of a public package: its identity depends on the
// version of Go.
package jsonv2
