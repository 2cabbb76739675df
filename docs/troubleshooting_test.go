package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
)

// TestTroubleshooting_HasEveryCode looks for a row of a table that begins with each close code of
// docs/protocol.json, and with each error code.
func TestTroubleshooting_HasEveryCode(t *testing.T) {
	text, err := os.ReadFile("guides/troubleshooting.md")
	require.NoError(t, err)
	row := func(code string) {
		assert.Regexp(t, `(?m)^\| `+regexp.QuoteMeta(code)+` \| [^|]`, string(text), "no row of a table begins with %s", code)
	}
	for _, rule := range rules.CloseRules {
		for _, code := range rule.Codes {
			row(fmt.Sprint(code))
		}
	}
	row("other 4000 to 4999")
	for _, code := range errors.Codes() {
		row("`" + string(code) + "`")
	}
}
