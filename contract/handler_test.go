package contract_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/router"
)

func TestHandler_ServesTheContract(t *testing.T) {
	handler := contract.Handler(kitchenRouter(), kitchenOptions())
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "/contract", nil))
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
		assert.Equal(t, string(kitchenContract(t).Document()), w.Body.String())
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/contract", strings.NewReader("{}")))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}

func TestHandler_HasRoutesThatAreRegisteredLater(t *testing.T) {
	r := router.New(nil)
	server := httptest.NewServer(contract.Handler(r, nil))
	defer server.Close()
	router.On(r, func(*router.Context, Ping) error { return nil })
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // the body has been read
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"PING"`)
}

func TestHandler_ReportsTypesWithoutJSONForm(t *testing.T) {
	r := router.New(nil)
	router.DeclareMessage[shapeMessage](r)
	w := httptest.NewRecorder()
	contract.Handler(r, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "contract_test.Shape is an interface without variants")
}

type shapeMessage struct{ Shape Shape }

func (shapeMessage) MessageType() string { return "SHAPE" }
