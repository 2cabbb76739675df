// Package api tests the types of the module's public packages. It is not in the module itself, because
// go/types and the packages that it loads take long to build.
package api
