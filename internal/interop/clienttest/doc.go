// Package clienttest runs the scenarios of internal/conformance, which docs/client-scenarios.md lists, against the clients
// for Go, TypeScript, Python and Kotlin, and these with real servers behind a proxy that injects faults.
package clienttest
