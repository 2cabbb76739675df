// Package clienttest runs the scenarios of internal/conformance, which docs/client-scenarios.md lists, against the Go client and the
// TypeScript client, and both with real servers behind a proxy that injects faults.
package clienttest
