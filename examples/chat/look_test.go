package main

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
)

// illegible lists the visible texts whose contrast is below 4.5:1, which WCAG 2.2
// (1.4.3, level AA) wants of all text but that of disabled controls.
const illegible = `(() => {
	const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
	const parse = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const mix = (over, under, share) => under.map((u, i) => over[i] * share + u * (1 - share));
	const lay = (color, under) => { const c = parse(color); return mix(c, under, c[3] / 255); };
	// The colours of a text and of what is behind it, with every layer applied.
	const look = ([element, ...inner], ink, under) => {
		const style = getComputedStyle(element);
		const ground = lay(style.backgroundColor, under);
		const pair = inner.length ? look(inner, ink, ground) : [lay(ink, ground), ground];
		return pair.map((color) => mix(color, under, Number(style.opacity)));
	};
	const luminance = (color) => {
		const [r, g, b] = color.map((c) => c / 255).map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const contrast = (element, ink) => {
		const path = [];
		for (let e = element; e; e = e.parentElement) path.unshift(e);
		const [dark, light] = look(path, ink, [255, 255, 255]).map(luminance).sort((a, b) => a - b);
		return (light + .05) / (dark + .05);
	};
	const low = [];
	const check = (element, text, ink) => {
		if (!element.checkVisibility({ visibilityProperty: true }) || element.closest(":disabled, .sr")) return;
		const ratio = contrast(element, ink);
		if (ratio < 4.5) low.push(text.trim() + ": " + ratio.toFixed(2));
	};
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const { parentElement: element, data } = walker.currentNode;
		if (data.trim()) check(element, data, getComputedStyle(element).color);
	}
	for (const field of document.querySelectorAll("input, textarea")) {
		if (field.value) check(field, field.value, getComputedStyle(field).color);
		else check(field, field.placeholder, getComputedStyle(field, "::placeholder").color);
	}
	return low;
})()`

// overflow is how many pixels one would have to scroll sideways to see all.
const overflow = `Math.max(...[document.scrollingElement, ...document.querySelectorAll("#messages, #side, #people")]
	.map((e) => e.scrollWidth - e.clientWidth))`

// narrow lists what can be tapped and is smaller than a fingertip.
const narrow = `[...document.querySelectorAll("button, input, textarea")]
	.filter((e) => e.checkVisibility({ visibilityProperty: true }))
	.map((e) => [e.id || e.textContent, e.getBoundingClientRect()])
	.filter(([, { width, height }]) => width < 40 || height < 40)
	.map(([name, { width, height }]) => name + ": " + width.toFixed() + "x" + height.toFixed())`

func (v *visitor) fitsAPhone(name string) {
	v.t.Helper()
	v.shot(name)
	assert.Empty(v.t, eval[[]string](v, narrow), "%s: what is hard to tap", name)
}

func (v *visitor) tap(selector string) {
	v.t.Helper()
	v.do(chromedp.Tap(chromedp.CSS(selector)))
}

func somebodyJoinsByPhone(t *testing.T, browser context.Context) {
	chat := open(t)
	ann, eve := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), phone)
	const name, room = "annabelle_charlotte.winterbottom", "the-garden-behind-the-house-of-annabelle-charlotte-winterbottom"
	ann.signIn(name, room)
	ann.say("Who brings the ladder? " + strings.Repeat("w", 150))
	eve.fitsAPhone("sign-in")
	eve.fill("name", "eve")
	eve.fill("room", room)
	eve.tap("#signin-submit")
	eve.until(joined)
	eve.until(`document.querySelector(".text").textContent.startsWith("Who brings the ladder?")`)
	eve.tap("#text")
	eve.press("I do.")
	eve.tap("#send")
	ann.until(`document.querySelector("[data-user=eve] .text").textContent === "I do."`)
	eve.until(`document.querySelector("[data-state=sent][data-own=true]")`)
	eve.fitsAPhone("talking")
	assert.True(t, eval[bool](eve, `document.querySelector("#send").getBoundingClientRect().bottom <= innerHeight`), "the input is on the screen")

	eve.tap("#flood")
	eve.until(`document.querySelector("[data-kind=burst]")?.dataset.pending === "0"`)
	eve.fitsAPhone("flooding")
	eve.tap("#side-toggle")
	eve.until(`document.querySelector("#side-close").checkVisibility({ visibilityProperty: true })`)
	eve.shows(people, []string{name, "eve, you"})
	eve.fitsAPhone("people")
	eve.tap("#side-close")
	eve.until(`!document.querySelector("#side-close").checkVisibility({ visibilityProperty: true })`)
}

// stop is where the focus is: what it is on, and whether one can see that.
const stop = `(() => {
	const { id, textContent } = document.activeElement;
	const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
	return (id || textContent) + (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 ? "" : " (unseen)");
})()`

// tabs presses Tab until the focus has been on all of the wanted elements.
func (v *visitor) tabs(want ...string) {
	v.t.Helper()
	var stops []string
	for range want {
		v.press(kb.Tab)
		stops = append(stops, eval[string](v, stop))
	}
	assert.Equal(v.t, want, stops)
}

func aKeyboardIsEnough(t *testing.T, browser context.Context) {
	chat := open(t, "-capacity=2", "-refill=1")
	ann := visit(browser, t, chat.url(), desktop)
	ann.shows(stop, "name")
	ann.press("ann")
	ann.tabs("room", "signin-submit")
	ann.press(kb.Enter)
	ann.until(joined)
	ann.shows(stop, "text")
	ann.press("one")
	ann.press(kb.Enter, chromedp.ModifierShift)
	ann.press("two")
	ann.tabs("send")
	ann.press(" ")
	ann.shows(conversation, []string{"You: one\ntwo"})
	ann.shows(stop, "text")
	ann.press("three" + kb.Enter)
	ann.shows(conversation, []string{"You: one\ntwo", "You: three"})
	ann.shows(stop, "text")
	ann.tabs("send", "flood", "people-refresh", "switch-room", "switch-submit", "search-query", "search-submit", "signout")
	ann.shot("focus")

	ann.do(chromedp.Focus(chromedp.ID("text")))
	for eval[bool](ann, `!document.querySelector("[data-state=refused]")`) {
		ann.press("m" + kb.Enter) // short, to be typed faster than the budget comes back
		ann.until(`!document.querySelector("[data-state=pending]")`)
	}
	ann.until(joined)
	ann.press(kb.Tab, chromedp.ModifierShift)
	assert.Equal(t, "Discard", eval[string](ann, stop))
	ann.press(kb.Enter)
	ann.shows(stop, "text")
	ann.until(`!document.querySelector("[data-state=refused]")`)
	ann.tabs("send")

	ann.do(chromedp.Focus(chromedp.ID("people-refresh")))
	for eval[bool](ann, `document.querySelector("#notice").hidden`) {
		ann.press(kb.Enter)
	}
	ann.do(chromedp.Focus(chromedp.ID("notice-close")))
	ann.press(kb.Enter)
	ann.shows(stop, "text")
}

func aDrawerOpensByKeyboard(t *testing.T, browser context.Context) {
	chat := open(t)
	ann := visit(browser, t, chat.url(), screen{width: 700, height: 700, scale: 1})
	ann.signIn("ann", "garden")
	ann.do(chromedp.Focus(chromedp.ID("side-toggle")))
	ann.press(kb.Enter)
	ann.shows(stop, "side-close")
	ann.tabs("people-refresh")
	ann.shot("drawer")
	ann.press(kb.Escape)
	ann.shows(stop, "side-toggle")
	ann.press(" ")
	ann.shows(stop, "side-close")
	ann.press(kb.Enter)
	ann.shows(stop, "side-toggle")
}
