package penstock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// namedPackages are packages by the names that texts use for them. Each name has one package.
var namedPackages = map[string]string{
	"aisdk": "adapters/aisdk", "broker": "broker", "brokertest": "broker/brokertest", "client": "client", "contract": "contract",
	"contracttest": "contract/contracttest", "durablestreams": "durablestreams", "errors": "errors", "fallback": "client/fallback",
	"httplimit": "middleware/httplimit", "inspect": "inspect", "limit": "limit", "metrics": "middleware/metrics",
	"outbound": "outbound", "ratelimit": "middleware/ratelimit", "router": "router", "routertest": "router/routertest", "run": "run",
}

var namedIdentifier = regexp.MustCompile(`(?:^|[^\w./"])([a-z]+)\.([A-Z]\w*)`)

// TestSource_TextsNameWhatExists looks up the identifiers that errors, logs and comments name, such as router.Topic. A
// remedy that does not exist is worse than none.
func TestSource_TextsNameWhatExists(t *testing.T) {
	found := 0
	for _, path := range filesOf(t, ".go") {
		if strings.HasSuffix(path, "_test.go") { // those of this test have names that do not exist
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, text := range textsOf(file) {
			for _, match := range namedIdentifier.FindAllStringSubmatch(text, -1) {
				dir, ok := namedPackages[match[1]]
				if !ok {
					continue
				}
				found++
				names, err := exportedNames(dir)
				require.NoError(t, err)
				assert.True(t, names[match[2]], "%s: %s.%s does not exist:\n%s", path, match[1], match[2], text)
			}
		}
	}
	assert.Greater(t, found, 300)
}

// textsOf returns the comments of a file, and its strings.
func textsOf(file *ast.File) (texts []string) {
	for _, group := range file.Comments {
		texts = append(texts, group.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			texts = append(texts, strings.Trim(literal.Value, "`\""))
		}
		return true
	})
	return texts
}
