package router_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestAuthenticate_ExpectedErrorsAreNoErrorsOfTheServer checks who receives the private part of an
// error of Authenticate.
func TestAuthenticate_ExpectedErrorsAreNoErrorsOfTheServer(t *testing.T) {
	for _, tt := range []struct {
		err      error
		expected bool
	}{
		{&errors.Error{Code: errors.Unauthenticated, Message: "secret token", Err: errors.New("signature is invalid")}, true},
		{&errors.Error{Code: errors.PermissionDenied, Err: errors.New("signature is invalid")}, true},
		{&errors.Error{Code: errors.Unavailable, Err: errors.New("signature is invalid")}, false},
		{&errors.Error{Code: errors.InvalidArgument, Err: errors.New("signature is invalid")}, false},
		{errors.New("signature is invalid"), false},
	} {
		for _, hooked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, OnError %v", tt.err, hooked), func(t *testing.T) {
				var log bytes.Buffer
				var failures []router.ErrorReport
				opts := &router.Options{
					Authenticate: failingAuthenticate(tt.err),
					Logger:       slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				}
				if hooked {
					opts.OnError = func(report router.ErrorReport) { failures = append(failures, report) }
				}
				routertest.Refused(t, router.New(opts), routertest.RemoteAddr("192.0.2.7:1"))
				text := log.String()
				assert.Regexp(t, `level=DEBUG msg="connection refused" .*ip=192\.0\.2\.7`, text)
				assert.Equal(t, !tt.expected && !hooked, strings.Contains(text, "level=ERROR"), text)
				assert.NotContains(t, text, "secret token")
				if tt.expected {
					assert.Regexp(t, `level=DEBUG .* error=".*signature is invalid"`, text)
				}
				if !hooked || tt.expected {
					assert.Empty(t, failures)
					return
				}
				require.Len(t, failures, 1)
				assert.Equal(t, router.ErrorReport{IP: netip.MustParseAddr("192.0.2.7"), Err: tt.err, Context: context.Background()}, failures[0])
			})
		}
	}
}

// TestAuthenticate_ExpectedErrorsOfRefreshAreNoErrorsOfTheServer checks the same for $ws:auth.
func TestAuthenticate_ExpectedErrorsOfRefreshAreNoErrorsOfTheServer(t *testing.T) {
	for _, tt := range []struct {
		code   errors.Code
		errors int
	}{
		{errors.Unauthenticated, 0}, {errors.PermissionDenied, 0}, {errors.Unavailable, 1},
	} {
		runSynctest(t, string(tt.code), func(t *testing.T) {
			var failures recorder[router.ErrorReport]
			var refusals recorder[router.Refusal]
			var log lockedBuffer
			cause := &errors.Error{Code: tt.code, Err: errors.New("signature is invalid")}
			r := router.New(&router.Options{
				Authenticate: failingAuthenticate(cause),
				OnError:      failures.add,
				OnRefused:    refusals.add,
				Logger:       slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			conn := routertest.Dial(t, r, routertest.Token("ok"), routertest.RemoteAddr("192.0.2.7:1"))
			assert.Equal(t, tt.code, routertest.RefreshError(conn, "wrong").Code)
			synctest.Wait()
			assert.Len(t, failures.all(), tt.errors)
			for _, failure := range failures.all() {
				assert.Equal(t, netip.MustParseAddr("192.0.2.7"), failure.IP)
			}
			require.Len(t, refusals.all(), 1)
			assert.Equal(t, "$ws:auth", refusals.all()[0].Type)
			assert.ErrorIs(t, refusals.all()[0].Err, cause)
			if tt.errors == 0 {
				assert.Regexp(t, `level=DEBUG msg="refresh refused" .*ip=192\.0\.2\.7 .*error=".*signature is invalid"`, log.String())
			}
		})
	}
}
