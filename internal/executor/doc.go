// Package executor runs jobs: one after another in a [SerialQueue] or [FuncQueue], on
// goroutines of a [Pool] that live only while there is something to do. A job may end its goroutine
// with runtime.Goexit: [Do] sees that, and another goroutine goes on. A [Gate] ends calls.
//
// Goroutines. A SerialQueue has at most one goroutine in Run that may take the next job.
// A job that calls Yield keeps its goroutine and lets another one take the next job.
//
// Lock order. SerialQueue's lock comes before Pool's, before ByteBudget's and before what
// Owner.AfterJob locks. No lock is held while a job runs.
package executor
