// Package clienttest runs one list of scenarios, docs/client-scenarios.md, against the Go client and the
// TypeScript client: with a scripted server, and with real servers behind a proxy that injects faults.
package clienttest
