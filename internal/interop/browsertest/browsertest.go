//go:build !js

// Package browsertest tests pages in Chromium. It uses chromedp, which needs no separate driver and few
// modules.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Timeout bounds every wait for a page. It is long, because machines may be busy.
const Timeout = time.Minute

// Program returns the path of Chromium. Without it, the test is skipped, or fails if
// PENSTOCK_REQUIRE_CHROMIUM=1 or CI=true is set.
func Program(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("PENSTOCK_REQUIRE_CHROMIUM") == "1" || os.Getenv("CI") == "true" {
		t.Fatal("no chromium in PATH; install it: PENSTOCK_REQUIRE_CHROMIUM=1 or CI=true requires it")
	}
	t.Skip("no chromium in PATH; install it to test pages in a browser")
	return ""
}

// Start returns the context of a browser, which stops at the end of the test.
func Start(t testing.TB) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(Program(t)),
		chromedp.NoSandbox, // the sandbox does not work as root and in most containers; the pages are trusted
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Env("LANGUAGE=en_US"),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}
