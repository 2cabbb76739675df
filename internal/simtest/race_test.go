//go:build race

package simtest

const raced = true
