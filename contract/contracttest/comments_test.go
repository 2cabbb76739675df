package contracttest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/contracttest"
	"github.com/penstock-go/penstock/router"
)

// Order orders goods.
//
//nolint:godoclint // a directive is no comment
type Order struct {
	base

	// Goods are what is ordered.
	// There is at least one.
	Goods []string `json:"goods"`
	Note  string   `json:"note" description:"The tag counts."` // and not this
	Price int      `json:"price"`                              // in cents

	Page page[int] `json:"page"`
}

type (
	// A base is embedded.
	base struct {
		By string `json:"by"` // the user ID
	}

	// A page is generic.
	page[T any] struct {
		Items []T `json:"items"` // all of them
	}
)

func (Order) MessageType() string { return "ORDER" }

// checkText returns what Check writes for the TypeScript types of a router.
func checkText(t *testing.T, r *router.Router, opts *contract.Options) string {
	t.Helper()
	updating(t, "true")
	defer updating(t, "false")
	path := filepath.Join(t.TempDir(), "contract.ts")
	contracttest.Check(t, r, path, opts)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestCheck_CommentsOfGoReachTheContract(t *testing.T) {
	r := router.New(nil)
	router.On(r, func(*router.Context, Order) error { return nil })
	text := checkText(t, r, nil)
	for _, want := range []string{
		"/** Order orders goods. */\nexport interface Order {",
		"  /** the user ID */\n  by: string;",
		"  /**\n   * Goods are what is ordered.\n   * There is at least one.\n   */\n  goods: string[];",
		"  /** The tag counts. */\n  note: string;",
		"  /** in cents */\n  price: number;",
		"/** A page is generic. */\nexport interface",
		"  /** all of them */\n  items: number[];",
	} {
		assert.Contains(t, text, want)
	}
	none := &contract.Options{Comments: func(string) map[string]string { return nil }}
	assert.NotContains(t, checkText(t, r, none), "orders goods")
}
