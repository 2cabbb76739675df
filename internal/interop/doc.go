// Package interop tests the router with the frameworks and reverse proxies that people use
// it with. It is a module of its own, so that they do not become dependencies.
package interop
