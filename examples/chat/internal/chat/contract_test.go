package chat

import (
	"testing"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/contracttest"
)

// TestContract_FilesAreUpToDate fails when a message changes and the files that clients are written
// against do not. Run it with -contract.update to write them.
func TestContract_FilesAreUpToDate(t *testing.T) {
	r := newServer(newConfig(t)).router
	opts := &contract.Options{Title: "Penstock chat", Description: "Rooms in which users talk.", URL: "ws://localhost:8080/ws"}
	contracttest.Check(t, r, "../../contract.ts", opts)
	contracttest.Check(t, r, "../../contract.asyncapi.json", opts)
	contracttest.Check(t, r, "../../../bot-python/contract.py", opts)
	contracttest.Check(t, r, "../../../bot-kotlin/src/main/kotlin/bot/Contract.kt", opts)
}
