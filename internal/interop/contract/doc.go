// Package contract tests the files that package contract generates with programs of npm: the compiler
// of TypeScript, and a validator with the official schema of AsyncAPI.
package contract
