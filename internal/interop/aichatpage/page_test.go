package aichatpage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// JavaScript expressions for what a page shows.
const (
	questions    = `[...document.querySelectorAll("#messages [data-role=user] .text")].map((p) => p.textContent)`
	answers      = `[...document.querySelectorAll("#messages [data-role=assistant] .text")].map((p) => p.textContent)`
	lastAnswer   = answers + `.at(-1)`
	lastWords    = lastAnswer + `.trim().split(" ").length`
	isRunning    = `!document.querySelector("#stop").hidden`
	isIdle       = `document.querySelector("#stop").hidden && document.querySelector("#state").textContent === "Connected"`
	isIncomplete = `document.querySelectorAll("#messages .note").length === 1`
	notice       = `document.querySelector("#notice").textContent`
	tokensLeft   = `Number(document.querySelector("[data-limit='tokens per day']").dataset.left)`
)

// long is a question whose answer takes at least half a minute, because it has nine words for each
// of the question.
var long = strings.Repeat("tomato ", 100)

// signIn opens the page in a browser context of its own, as ann in a new chat.
func signIn(browser context.Context, t *testing.T, url string) *browsertest.Page {
	t.Helper()
	p := browsertest.Open(browser, t, url)
	p.Do(chromedp.Focus(chromedp.ID("name")), chromedp.KeyEvent("ann"+kb.Enter))
	p.WaitFor(isIdle)
	return p
}

func askPage(p *browsertest.Page, question string) {
	p.T.Helper()
	p.Do(chromedp.Focus(chromedp.ID("text")), chromedp.KeyEvent(question+kb.Enter))
}

func TestPage(t *testing.T) {
	testscale.FullOnly(t, "TestServer_AnswersWhatThePageSends")
	browser := browsertest.Start(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, context.Context)
	}{
		{"answer is shown and saved", testAnswerIsShownAndSaved},
		{"reload and a second tab continue the answer", testReloadAndSecondTabContinue},
		{"stop reaches all tabs", testStopReachesAllTabs},
		{"another node continues the answer", testAnotherNodeContinues},
		{"exhausted budget is named", testExhaustedBudgetIsNamed},
		{"invalid name is shown", testInvalidNameIsShown},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, browser) })
	}
}

// answerTo returns the whole answer of the fake model to a question, which is the nth of its chat.
func answerTo(question string, n int) string {
	words := strings.Fields(question)
	text := fmt.Sprintf("You have asked: %q. It is question %d of this chat, and has %d words. ", strings.TrimSpace(question), n, len(words)) +
		"I am a fake model, so I know nothing about it. But I write slowly enough for you to reload the page, to open it in a second tab, or to stop me. "
	for i, word := range words {
		text += fmt.Sprintf("Word %d is %s, and it has %d letters. ", i+1, word, len(word))
	}
	return text
}

func testAnswerIsShownAndSaved(t *testing.T, browser context.Context) {
	ann := signIn(browser, t, program.Start(t).URL())
	ann.WaitEqual(tokensLeft, 20_000)
	ann.WaitEqual(`document.querySelector("[data-limit='tokens per day'] meter").getAttribute("aria-valuetext")`, "20,000 of 20,000 tokens per day left")
	askPage(ann, "<b>hello</b>")
	ann.WaitFor(isRunning)
	ann.WaitEqual(questions, []string{"<b>hello</b>"})
	ann.WaitFor(isIdle)
	ann.WaitEqual(answers, []string{answerTo("<b>hello</b>", 1)})
	ann.WaitFor(tokensLeft + " < 20000")
	askPage(ann, "again")
	ann.WaitEqual(answers, []string{answerTo("<b>hello</b>", 1), answerTo("again", 2)})
	ann.WaitFor(isIdle)
	ann.Do(chromedp.Reload())
	ann.WaitEqual(answers, []string{answerTo("<b>hello</b>", 1), answerTo("again", 2)})
	ann.WaitFor(isIdle)
	ann.WaitEqual(notice, "")
	ann.Screenshot("conversation")
}

func testReloadAndSecondTabContinue(t *testing.T, browser context.Context) {
	ann := signIn(browser, t, program.Start(t).URL())
	const question = "one two three four five six seven eight nine ten"
	askPage(ann, question)
	ann.WaitFor(lastWords + " > 10")
	tab := ann.OpenTab(browsertest.Eval[string](ann, "location.href"))
	tab.WaitFor(isRunning)
	ann.Do(chromedp.Reload())
	ann.WaitFor(isRunning)
	for _, p := range []*browsertest.Page{ann, tab} {
		p.WaitEqual(answers, []string{answerTo(question, 1)})
		p.WaitFor(isIdle)
		p.WaitEqual(questions, []string{question})
	}
}

func testStopReachesAllTabs(t *testing.T, browser context.Context) {
	ann := signIn(browser, t, program.Start(t).URL())
	askPage(ann, long)
	ann.WaitFor(lastWords + " > 10")
	tab := ann.OpenTab(browsertest.Eval[string](ann, "location.href"))
	tab.WaitFor(isRunning)
	tab.Do(chromedp.Click(chromedp.ID("stop")))
	for _, p := range []*browsertest.Page{ann, tab} {
		p.WaitFor(isIdle)
		p.WaitFor(isIncomplete)
	}
	stopped := browsertest.Eval[string](ann, lastAnswer)
	assert.True(t, strings.HasPrefix(answerTo(long, 1), stopped), stopped)
	tab.WaitEqual(lastAnswer, stopped)
	askPage(ann, "go on")
	tab.WaitEqual(lastAnswer, answerTo("go on", 2))
	ann.WaitEqual(notice, "")
}

// testAnotherNodeContinues moves a page to another node.
func testAnotherNodeContinues(t *testing.T, browser context.Context) {
	flag := "-redis=redis://" + redistest.Start(t).Addr
	one, two := program.Start(t, flag), program.Start(t, flag)
	current := one
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { current.Forward().ServeHTTP(w, r) }))
	t.Cleanup(proxy.Close)
	ann := signIn(browser, t, proxy.URL)
	const question = "one two three four five six seven eight nine ten"
	askPage(ann, question)
	ann.WaitFor(lastWords + " > 10")
	current = two
	proxy.CloseClientConnections()
	ann.WaitEqual(answers, []string{answerTo(question, 1)})
	ann.WaitFor(isIdle)
	ann.Do(chromedp.Reload())
	ann.WaitEqual(answers, []string{answerTo(question, 1)})
}

func testExhaustedBudgetIsNamed(t *testing.T, browser context.Context) {
	ann := signIn(browser, t, program.Start(t, "-tokens-per-minute=200").URL())
	askPage(ann, strings.Repeat("tomato ", 20))
	ann.WaitEqual(notice, "Your budget of tokens per minute is used up.")
	ann.WaitFor(isIncomplete)
	ann.WaitFor(isIdle)
	askPage(ann, "hello")
	ann.WaitFor(notice + `.startsWith("Your budget of tokens per minute is used up. Ask again in ")`)
	ann.Screenshot("exhausted")
	askPage(ann, " "+long) // behind "hello", which is still in the field
	ann.WaitEqual(notice, "The question is longer than your budget of tokens per minute.")
	ann.WaitEqual(questions+".length", 1)
}

func testInvalidNameIsShown(t *testing.T, browser context.Context) {
	p := browsertest.Open(browser, t, program.Start(t).URL())
	p.Do(chromedp.Focus(chromedp.ID("name")), chromedp.KeyEvent("<b>"+kb.Enter))
	p.WaitFor(`document.querySelector("#name-error").textContent.includes("use a name with 1 to 32 characters")`)
	p.WaitFor(`!document.querySelector("#signin").hidden`)
}
