// Package fallback tests the HTTP fallback in Chromium, behind proxies that break WebSockets or HTTP
// requests. Pages send numbers and receive them again, and both directions are counted exactly:
//
//	PENSTOCK_TESTS=10m go test -C internal/interop -run TestPage ./fallback -timeout 0 -v
//
// lets each page send for ten minutes.
package fallback
