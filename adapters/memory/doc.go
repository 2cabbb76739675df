// Package memory holds adapters that live in this process: a limiter for a
// program that runs on one machine.
package memory
