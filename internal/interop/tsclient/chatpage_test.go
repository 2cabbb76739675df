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

// chatClient is what the chat page loads, so that it runs without a build.
const chatClient = "../../../examples/chat/page/penstock-client.js"

const chatClientHead = `// The TypeScript client of clients/ts, built by its "npm run build". Do not edit it here:
// go test -C internal/interop ./tsclient -run ChatPage -args -page.update
`

var sourceMap = regexp.MustCompile(`\n*//# sourceMappingURL=.*\s*$`)

func TestChatPage_HasCurrentBuildOfClient(t *testing.T) {
	run(t, nil, "npm", "run", "build")
	built, err := os.ReadFile(filepath.Join(install(t), "dist", "index.js"))
	require.NoError(t, err)
	want := chatClientHead + sourceMap.ReplaceAllString(string(built), "") + "\n"
	if *updatePage {
		require.NoError(t, os.WriteFile(chatClient, []byte(want), 0o600))
	}
	committed, err := os.ReadFile(chatClient)
	require.NoError(t, err)
	assert.True(t, want == string(committed), "the client has changed; write it with -args -page.update")
}
