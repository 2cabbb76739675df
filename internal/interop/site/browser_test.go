//go:build !js

package site_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestSite_SearchFindsPhrases(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	p := browsertest.Open(browsertest.Start(t), t, serve(t))
	for phrase, page := range map[string]string{
		"graceful shutdown": "deployment.html#graceful-shutdown",
		"slow consumer":     "connections.html",
	} {
		p.WaitFor(`document.querySelector("#local-search button")`)
		// The button works when the page is hydrated.
		p.WaitFor(`document.querySelector("#localsearch-input") || (document.querySelector("#local-search button").click(), false)`)
		browsertest.Eval[any](p, `(() => {
			const input = document.querySelector("#localsearch-input")
			input.value = `+quote(t, phrase)+`
			input.dispatchEvent(new Event("input", { bubbles: true }))
		})()`)
		p.WaitFor(`[...document.querySelectorAll("#localsearch-list a")].some((a) => a.href.includes(` + quote(t, page) + `))`)
		browsertest.Eval[any](p, `document.querySelector(".VPLocalSearchBox .backdrop").click()`)
		p.WaitFor(`!document.querySelector("#localsearch-input")`)
	}
	assert.Empty(t, browsertest.Eval[[]string](p, `performance.getEntriesByType("resource").map(({ name }) => name).filter((name) => new URL(name).origin !== location.origin)`))
}

func TestSite_PageThatDoesNotExist(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	p := browsertest.Open(browsertest.Start(t), t, serve(t)+"guides/none.html")
	p.Expect("status 404")
	p.Expect("network error: Failed to load resource: the server responded with a status of 404")
	p.WaitFor(`document.body.innerText.includes("Page not found")`)
	p.WaitEqual(`document.querySelector(".NotFound a").getAttribute("href")`, base)
}

// shown are pages with everything that the site consists of.
var shown = []string{"", "guides/getting-started.html", "guides/reverse-proxies.html", "protocol.html", "decisions/0066-scenarios-for-clients-are-data.html"}

func TestSite_FitsNarrowWindows(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	address, browser := serve(t), browsertest.Start(t)
	for _, page := range testscale.SoakSample(append([]string{"readme.html", "changelog.html"}, shown...), 4) {
		p := browsertest.Open(browser, t, address+page, chromedp.EmulateViewport(360, 740))
		p.WaitFor(`document.querySelector(".VPDoc h1")`)
		wide := browsertest.Eval[[]string](p, `document.documentElement.scrollWidth <= 360 ? [] :
			[...document.querySelectorAll(".VPContent *")].filter((e) => e.getBoundingClientRect().right > 361).map((e) => e.outerHTML.slice(0, 100))`)
		assert.Empty(t, wide, "%q scrolls horizontally", page)
	}
}

// TestSite_HomePageShowsCodeAndPicture looks at a phone and at a desktop in both schemes.
func TestSite_HomePageShowsCodeAndPicture(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	address, browser := serve(t), browsertest.Start(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 1440} {
			p := browsertest.Open(browser, t, address, chromedp.EmulateViewport(width, 900), browsertest.ColorScheme(scheme))
			p.WaitEqual(`document.documentElement.classList.contains("dark")`, scheme == "dark")
			cut := browsertest.Eval[[]string](p, `[...document.querySelectorAll(".vp-doc pre")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)`)
			assert.Empty(t, cut, "code is cut at %d pixels", width)
			p.WaitEqual(`[...document.querySelectorAll(".hero > img")].filter((e) => e.checkVisibility() && e.naturalWidth > 0).length`, 1)
			p.WaitFor(`document.querySelector(".VPNavBarTitle img").naturalWidth > 0 && document.querySelector(".hero .logo").naturalWidth > 0`)
			p.Screenshot(fmt.Sprintf("home-%d-%s", width, scheme))
		}
	}
}

func TestSite_IsAccessible(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	address, browser := serve(t), browsertest.Start(t)
	axe, err := os.ReadFile(filepath.Join(workspace(t), "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	for _, scheme := range []string{"light", "dark"} {
		for _, page := range testscale.SoakSample(shown, 2) {
			p := browsertest.Open(browser, t, address+page, chromedp.EmulateViewport(1280, 900), browsertest.ColorScheme(scheme))
			p.WaitEqual(`document.documentElement.classList.contains("dark")`, scheme == "dark")
			browsertest.Eval[any](p, string(axe)+"; undefined")
			assert.Empty(t, browsertest.Violations(p), "%q in %s", page, scheme)
		}
	}
}

// TestSite_DarkPagesHaveNoLightAreas looks at elements, and at pictures on the screen, which are drawn
// without a background.
func TestSite_DarkPagesHaveNoLightAreas(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	address, browser := serve(t), browsertest.Start(t)
	pictures := 0
	for _, page := range append(testscale.SoakSample(pagesWithPictures(t), 3), testscale.SoakSample(shown, 1)...) {
		p := browsertest.Open(browser, t, address+page, chromedp.EmulateViewport(1280, 900), browsertest.ColorScheme("dark"))
		p.WaitFor(`document.documentElement.classList.contains("dark")`)
		light := browsertest.Eval[[]string](p, `[...document.querySelectorAll("body, body *")].filter((e) => {
			const { width, height } = e.getBoundingClientRect()
			const [r, g, b, a = 1] = getComputedStyle(e).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0]
			return width * height > 1000 && a > 0.5 && Math.min(r, g, b) > 180
		}).map((e) => e.outerHTML.slice(0, 100))`)
		assert.Empty(t, light, page)
		for i := range browsertest.Eval[int](p, `(window.pictures = [...document.querySelectorAll(".vp-doc img[src*='.svg'], .vp-doc img[src^='data:image/svg']")]).length`) {
			pictures++
			assert.Less(t, lightShare(p, i), 0.1, "%s: %s", page, browsertest.Eval[string](p, quoteIndex(t, i)+`.alt`))
		}
	}
	assert.Greater(t, pictures, 2)
}

func quoteIndex(t *testing.T, i int) string { return "pictures[" + quote(t, i) + "]" }

// lightShare returns which part of a picture is almost white on the screen.
func lightShare(p *browsertest.Page, i int) float64 {
	p.T.Helper()
	picture := quoteIndex(p.T, i)
	browsertest.Eval[any](p, picture+`.scrollIntoView({ block: "center" })`)
	p.WaitFor(picture + `.complete && ` + picture + `.naturalWidth > 0`)
	var screenshot []byte
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		var err error
		screenshot, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
		return err
	}))
	shown, err := png.Decode(bytes.NewReader(screenshot))
	require.NoError(p.T, err)
	var area struct{ X, Y, Width, Height float64 }
	require.NoError(p.T, json.Unmarshal([]byte(browsertest.Eval[string](p, `JSON.stringify(`+picture+`.getBoundingClientRect())`)), &area))
	light, all := 0, 0
	for y := max(0, int(area.Y)); y < min(shown.Bounds().Dy(), int(area.Y+area.Height)); y++ {
		for x := int(area.X); x < int(area.X+area.Width); x++ {
			all++
			if r, g, b, _ := shown.At(x, y).RGBA(); min(r, g, b) > 0xe000 {
				light++
			}
		}
	}
	require.Positive(p.T, all)
	return float64(light) / float64(all)
}

// pagesWithPictures returns the guides that show SVG pictures.
func pagesWithPictures(t *testing.T) (pages []string) {
	for _, file := range markdownFiles(t, "docs/guides") {
		text, err := os.ReadFile(filepath.Join(repository, file))
		require.NoError(t, err)
		if strings.Contains(string(text), ".svg)") {
			pages = append(pages, "guides/"+strings.TrimSuffix(filepath.Base(file), ".md")+".html")
		}
	}
	return pages
}
