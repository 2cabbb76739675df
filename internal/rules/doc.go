// Package rules has what several packages do in the same way: wait between attempts, react to close codes, count addresses
// by prefix, recognize an HTTP token.
package rules
