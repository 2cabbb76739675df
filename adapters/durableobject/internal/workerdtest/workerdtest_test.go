package workerdtest_test

import (
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestMain(m *testing.M) { workerdtest.Main(m) }

func TestServer_AnswersAfterRestart(t *testing.T) {
	testscale.FullOnly(t, "TestStart_SkipsOrFailsWithoutNode")
	s := workerdtest.Start(t)
	url := s.URL
	assert.Equal(t, http.StatusUnauthorized, status(t, url))
	for _, restart := range []func(){func() { s.Restart() }, s.Clear, func() { s.Stop(); s.Restart() }} {
		restart()
		assert.Equal(t, url, s.URL)
		assert.Equal(t, http.StatusUnauthorized, status(t, url))
	}
	s.Kill()
	_, err := http.Get(url)
	require.Error(t, err)
}

func status(t *testing.T, url string) int {
	response, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// TestStart_SkipsOrFailsWithoutNode runs the test above without programs in PATH.
func TestStart_SkipsOrFailsWithoutNode(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for required, want := range map[string]string{"": "--- SKIP: ", "1": "--- FAIL: "} {
		command := exec.Command(self, "-test.run=^TestServer_AnswersAfterRestart$", "-test.v")
		command.Env = append(os.Environ(), "PATH=", "CI=", "PENSTOCK_TESTS=full", "PENSTOCK_REQUIRE_NODE="+required)
		out, _ := command.Output()
		assert.Contains(t, string(out), want+"TestServer_AnswersAfterRestart")
		assert.Contains(t, string(out), "Node.js 20 or newer with npm is not installed")
	}
}
