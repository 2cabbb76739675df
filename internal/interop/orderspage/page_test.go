//go:build !js

package orderspage_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/postgrestest"
)

var orders = &exampletest.Example{Name: "orders"}

func TestMain(m *testing.M) { orders.Main(m) }

// shown has the items of the orders that a page shows, the newest first.
const shown = `[...document.querySelectorAll("#orders tr td:first-child")].map((td) => td.textContent)`

func open(browser context.Context, t *testing.T, program *exampletest.Program) *browsertest.Page {
	t.Helper()
	p := browsertest.Open(browser, t, program.URL())
	p.WaitEqual(`document.querySelector("#status").textContent`, "Connected")
	return p
}

func order(p *browsertest.Page, item string) {
	p.T.Helper()
	browsertest.Eval[chromedp.Void](p, `void (document.querySelector("#item").value = "`+item+`", document.querySelector("#form").requestSubmit())`)
}

func TestPage_ShowsOrdersOfAllNodesOnceAfterAKill(t *testing.T) {
	database := "-postgres=" + postgrestest.Shared(t)
	browser := browsertest.Start(t)
	first, second := orders.Start(t, database), orders.Start(t, database)
	ann := open(browser, t, first)
	order(ann, "book")
	bob := open(browser, t, second)
	bob.WaitEqual(shown, []string{"book"})
	order(bob, "lamp")
	ann.WaitEqual(shown, []string{"lamp", "book"})

	second.Kill()
	bob.Expect("failed: " + second.URL() + "/orders/")
	bob.Expect("network error: ") // the WebSocket connection, and requests
	order(ann, "chair")
	order(bob, "table") // is sent again until the node is back
	bob.WaitEqual(`document.querySelector("#status").textContent.includes("again")`, true)
	ann.WaitEqual(shown, []string{"chair", "lamp", "book"})
	second.Restart()
	for _, p := range []*browsertest.Page{ann, bob} {
		p.WaitEqual(shown, []string{"table", "chair", "lamp", "book"})
	}
}
