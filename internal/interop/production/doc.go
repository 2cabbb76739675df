// Package production tests examples/production: its files are checked with the code of the programs that read them, and
// what its compose.yaml runs in containers runs here as processes.
package production
