package workerdtest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/workerdtest"
)

func TestMain(m *testing.M) { workerdtest.Main(m) }

func TestServer_AnswersAfterRestart(t *testing.T) {
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
