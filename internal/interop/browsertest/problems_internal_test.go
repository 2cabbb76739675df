//go:build !js

package browsertest

import (
	"testing"

	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/stretchr/testify/assert"
)

// TestPage_ReportsUnexpectedProblems sends events of a browser to a page, without a browser.
func TestPage_ReportsUnexpectedProblems(t *testing.T) {
	p := &Page{T: t, urls: map[network.RequestID]string{}}
	p.listen(&network.EventRequestWillBeSent{RequestID: "1", Request: &network.Request{URL: "http://host/cut"}})
	p.listen(&network.EventResponseReceived{Response: &network.Response{Status: 200, URL: "http://host/"}})
	assert.Empty(t, p.unexpected())
	p.listen(&network.EventLoadingFailed{RequestID: "1", ErrorText: "net::ERR_EMPTY_RESPONSE"})
	p.listen(&network.EventResponseReceived{Response: &network.Response{Status: 404, URL: "http://host/gone"}})
	p.listen(&browserlog.EventEntryAdded{Entry: &browserlog.Entry{Source: "network", Level: "error", Text: "Failed to load resource"}})
	p.listen(&page.EventJavascriptDialogOpening{Message: "a question"})
	want := []string{
		"failed: http://host/cut: net::ERR_EMPTY_RESPONSE",
		"status 404: http://host/gone",
		"network error: Failed to load resource",
		"dialog: a question",
	}
	assert.Equal(t, want, p.unexpected())
	p.Expect("network error: ")
	p.Expect("status 404")
	assert.Equal(t, []string{want[0], want[3]}, p.unexpected())
}
