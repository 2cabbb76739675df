package main

import (
	"testing"

	"github.com/penstock-go/penstock/contract/contracttest"
)

// TestContract_FileIsUpToDate fails when a message changes and the types of the pages do not. Run it
// with -contract.update to write them.
func TestContract_FileIsUpToDate(t *testing.T) {
	contracttest.Check(t, newBoard().router, "contract.ts", nil)
}
