package chatpage_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
)

// lowContrast lists the visible texts with a contrast below 4.5:1. WCAG 2.2 (1.4.3, level AA)
// requires that ratio for all text except that of disabled controls.
const lowContrast = `(() => {
	const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
	const parse = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const mix = (over, under, alpha) => under.map((u, i) => over[i] * alpha + u * (1 - alpha));
	const blend = (color, under) => { const c = parse(color); return mix(c, under, c[3] / 255); };
	// The colors of a text and of its background, with all layers and opacities applied.
	const colorsOf = ([element, ...inner], textColor, under) => {
		const style = getComputedStyle(element);
		const background = blend(style.backgroundColor, under);
		const pair = inner.length ? colorsOf(inner, textColor, background) : [blend(textColor, background), background];
		return pair.map((color) => mix(color, under, Number(style.opacity)));
	};
	const luminance = (color) => {
		const [r, g, b] = color.map((c) => c / 255).map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const contrast = (element, textColor) => {
		const path = [];
		for (let e = element; e; e = e.parentElement) path.unshift(e);
		const [dark, light] = colorsOf(path, textColor, [255, 255, 255]).map(luminance).sort((a, b) => a - b);
		return (light + .05) / (dark + .05);
	};
	const low = [];
	const check = (element, text, textColor) => {
		if (!element.checkVisibility({ visibilityProperty: true }) || element.closest(":disabled, .sr-only")) return;
		const ratio = contrast(element, textColor);
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

// overflow is the number of pixels that the page is wider than the screen.
const overflow = `Math.max(...[document.scrollingElement, ...document.querySelectorAll("#messages, #side, #people")]
	.map((e) => e.scrollWidth - e.clientWidth))`

// smallTapTargets lists the controls below 40 by 40 CSS pixels.
const smallTapTargets = `[...document.querySelectorAll("button, input, textarea")]
	.filter((e) => e.checkVisibility({ visibilityProperty: true }))
	.map((e) => [e.id || e.textContent, e.getBoundingClientRect()])
	.filter(([, { width, height }]) => width < 40 || height < 40)
	.map(([name, { width, height }]) => name + ": " + width.toFixed() + "x" + height.toFixed())`

func (p *page) checkPhoneScreen(name string) {
	p.T.Helper()
	p.checkScreen(name)
	assert.Empty(p.T, eval[[]string](p, smallTapTargets), "%s: tap targets are too small", name)
}

func (p *page) tap(selector string) {
	p.T.Helper()
	p.Do(chromedp.Tap(chromedp.CSS(selector)))
}

func testPhoneLayoutFits(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, eve := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), phone)
	const name, room = "annabelle_charlotte.winterbottom", "the-garden-behind-the-house-of-annabelle-charlotte-winterbottom"
	ann.signIn(name, room)
	ann.say("Who brings the ladder? " + strings.Repeat("w", 150))
	eve.checkPhoneScreen("sign-in")
	eve.fill("name", "eve")
	eve.fill("room", room)
	eve.tap("#signin-submit")
	eve.WaitFor(hasJoined)
	eve.WaitFor(`document.querySelector(".text").textContent.startsWith("Who brings the ladder?")`)
	eve.tap("#text")
	eve.press("I do.")
	eve.tap("#send")
	ann.WaitFor(`document.querySelector("[data-user=eve] .text").textContent === "I do."`)
	eve.WaitFor(`document.querySelector("[data-state=sent][data-own=true]")`)
	eve.checkPhoneScreen("talking")
	assert.True(t, eval[bool](eve, `document.querySelector("#send").getBoundingClientRect().bottom <= innerHeight`), "the send button is on the screen")

	eve.tap("#send-burst")
	eve.WaitFor(`document.querySelector("[data-kind=burst]")?.dataset.pending === "0"`)
	eve.checkPhoneScreen("burst")
	eve.tap("#side-toggle")
	eve.WaitFor(`document.querySelector("#side-close").checkVisibility({ visibilityProperty: true })`)
	eve.WaitEqual(people, []string{name, "eve, you"})
	eve.checkPhoneScreen("people")
	eve.tap("#side-close")
	eve.WaitFor(`!document.querySelector("#side-close").checkVisibility({ visibilityProperty: true })`)
}
