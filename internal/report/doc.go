// Package report writes what an operator sees: lines of a log, of which clients cannot cause many, samples of what they
// cause often, in bounded memory, and spans of a tracer.
//
// A [Log] writes few lines of a kind, of bounded size. Others of the kind are counted, and the next one has their number as
// suppressed. It calls the logger on the goroutine of the caller or of a timer, without a lock. A [Tracer] and [Hooks] call
// functions of the application, whose panics end nothing.
package report
