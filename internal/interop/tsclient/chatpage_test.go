package tsclient_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updatePage = flag.Bool("page.update", false, "write the client of the chat page")

// pages has what the pages of the examples load, so that they run without a build.
var pages = map[string]string{
	"index.js":   "chat/page/penstock-client.js",
	"pacing.js":  "chat/page/penstock-pacing.js",
	"streams.js": "aichat/page/penstock-streams.js",
}

const chatClientHead = `// The TypeScript client of clients/ts, built by its "npm run build". Do not edit it here:
// go test -C internal/interop ./tsclient -run ChatPage -args -page.update
`

var sourceMap = regexp.MustCompile(`\n*//# sourceMappingURL=.*\s*$`)

func TestChatPage_HasCurrentBuildOfClient(t *testing.T) {
	run(t, nil, "npm", "run", "build")
	for name, file := range pages {
		built, err := os.ReadFile(filepath.Join(install(t), "dist", name))
		require.NoError(t, err)
		want := chatClientHead + sourceMap.ReplaceAllString(string(built), "") + "\n"
		path := filepath.Join("../../../examples", file)
		if *updatePage {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		}
		committed, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(t, want == string(committed), "the client has changed; write it with -args -page.update")
	}
}
