package penstock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownAddresses are what only internal/rules does, for all that counts by the address of a client, and the files that do
// it for another reason.
var ownAddresses = []struct {
	pattern *regexp.Regexp
	instead string
	except  []string
}{
	{regexp.MustCompile(`map\[(netip\.Addr|net\.IP)\]`), "count by rules.PrefixOf", nil},
	{
		regexp.MustCompile(`\.Prefix\(|\bnetip\.PrefixFrom\(|\bnet\.CIDRMask\(|\b32, 64\)`), "use rules.PrefixOf or rules.PrefixName",
		[]string{"inspect/conns.go"}, // finds connections of exactly an address
	},
	{
		regexp.MustCompile(`\.(RemoteAddr|Header\.Get\("X-(Forwarded-For|Real-Ip)"\))`), "use clientip.TrustedProxies.ClientIP, and then rules.PrefixOf",
		[]string{
			"middleware/httplimit/key.go", // of a client without an address
			"router/identity_refresh.go",  // restores it
			"router/routertest/dial.go",   // sets it
		},
	},
}

// TestAddresses_HaveOneFunction finds product code that has an idea of its own of what one client's address is. With
// single IPv6 addresses, a client has 2^64.
func TestAddresses_HaveOneFunction(t *testing.T) {
	other := regexp.MustCompile(`^(clientip|cmd|internal/(benchmarks|interop|rules|netpoll|simnet|simtest))/|_test\.go$`)
	files, excepted := 0, map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != ".") {
			return fs.SkipDir
		}
		path = filepath.ToSlash(path)
		if !strings.HasSuffix(path, ".go") || other.MatchString(path) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "//")
			for _, own := range ownAddresses {
				if found := own.pattern.FindString(code); found != "" {
					excepted[path] = true
					assert.Contains(t, own.except, path, "%s has %q: %s", path, found, own.instead)
				}
			}
		}
		return nil
	}))
	assert.Greater(t, files, 500, "files of the product")
	for _, own := range ownAddresses {
		for _, path := range own.except {
			assert.True(t, excepted[path], "%s is no exception any more", path)
		}
	}
}
