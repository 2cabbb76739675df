package internal_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/closecodes"
)

var update = flag.Bool("update", false, "writes what is generated from docs/protocol.json")

// TestRules_AreThoseOfTheProtocol compares the table with docs/protocol.json.
func TestRules_AreThoseOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../docs/protocol.json")
	require.NoError(t, err)
	var protocol struct {
		CloseCodes []struct {
			Codes    []int
			Cause    string
			Reaction string
			Note     string
			Unsent   bool
		}
	}
	require.NoError(t, json.Unmarshal(text, &protocol))
	var b strings.Builder
	b.WriteString("// Code generated from docs/protocol.json. DO NOT EDIT.\n\npackage closecodes\n\n// Rules is the table.\n//\n//nolint:gochecknoglobals // never changed\nvar Rules = []Rule{\n")
	for _, r := range protocol.CloseCodes {
		b.WriteString("\t{")
		if r.Codes != nil {
			fmt.Fprintf(&b, "Codes: []int{%s}, ", join(r.Codes))
		}
		fmt.Fprintf(&b, "Cause: %q", r.Cause)
		if r.Reaction != "reconnect" {
			fmt.Fprintf(&b, ", Reaction: %s", strings.ToUpper(r.Reaction[:1])+r.Reaction[1:])
		}
		if r.Note != "" {
			fmt.Fprintf(&b, ", Note: %q", r.Note)
		}
		if r.Unsent {
			b.WriteString(", Unsent: true")
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\n")
	if *update {
		require.NoError(t, os.WriteFile("closecodes/rules.go", []byte(b.String()), 0o600))
		return
	}
	code, err := os.ReadFile("closecodes/rules.go")
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(code), "rules.go is not what docs/protocol.json says: run go test ./internal -update")
}

// TestTable_IsInTheDocumentsAndTheTypeScriptClient compares what is generated from the table with the files.
func TestTable_IsInTheDocumentsAndTheTypeScriptClient(t *testing.T) {
	for _, generated := range []struct{ path, begin, text, end string }{
		{"../docs/protocol.md", "<!-- close codes: begin -->\n", table(), "<!-- close codes: end -->"},
		{"../docs/writing-a-client.md", "// Section 5 of the protocol.\n", sample(), "\n"},
		{"../clients/ts/src/closecodes.ts", "", typeScript(), ""},
	} {
		content, err := os.ReadFile(generated.path)
		if !*update {
			require.NoError(t, err)
		}
		before, rest, found := strings.Cut(string(content), generated.begin)
		require.True(t, found, generated.path)
		after := ""
		if generated.end != "" {
			_, after, found = strings.Cut(rest, generated.end)
			require.True(t, found, generated.path)
		}
		want := before + generated.begin + generated.text + generated.end + after
		if *update {
			require.NoError(t, os.WriteFile(generated.path, []byte(want), 0o600))
			continue
		}
		assert.Equal(t, want, string(content), "%s is not what the table says: run go test ./internal -update", generated.path)
	}
}

// table returns the table of the protocol.
func table() string {
	var b strings.Builder
	b.WriteString("| code | the connection is closed because | a client SHOULD |\n| --- | --- | --- |\n")
	for _, r := range closecodes.Rules {
		codes := "others from 4000 to 4999"
		if r.Codes != nil {
			codes = join(r.Codes)
		}
		advice := reactions[r.Reaction]
		if r.Note != "" {
			separator := ", "
			if r.Reaction == closecodes.Stop {
				separator = ": "
			}
			advice += separator + r.Note
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", codes, r.Cause, advice)
	}
	return b.String()
}

var reactions = map[closecodes.Reaction]string{
	closecodes.Reconnect:    "reconnect with backoff",
	closecodes.CorrectOnce:  "reconnect with backoff, and stop if the next connection ends with one of these codes, too: a retry does not correct the client",
	closecodes.Authenticate: "get new credentials and reconnect with backoff, and stop if the next connection ends like this, too",
	closecodes.Return:       "reconnect with backoff; without a delay in the reason, the first time after a random time of up to " + seconds(closecodes.ReturnSpread) + " more",
	closecodes.ReturnLater:  "reconnect with backoff; without a delay in the reason, with a backoff from " + seconds(closecodes.BusyBackoff) + " on",
	closecodes.Stop:         "stop",
}

func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }

// sample returns the declaration of the sample in the guide.
func sample() string {
	twice := slices.Sorted(slices.Values(append(codesOf(closecodes.CorrectOnce), codesOf(closecodes.Authenticate)...)))
	return fmt.Sprintf("const STOP = [%s], STOP_AT_SECOND = [%s], RESTART = [%s], BUSY = [%s]",
		join(codesOf(closecodes.Stop)), join(twice), join(codesOf(closecodes.Return)), join(codesOf(closecodes.ReturnLater)))
}

// typeScript returns the constants of the TypeScript client.
func typeScript() string {
	var b strings.Builder
	b.WriteString("// Code generated from internal/closecodes. DO NOT EDIT.\n\n")
	for _, list := range []struct {
		name  string
		codes []int
	}{
		{"STOP", codesOf(closecodes.Stop)},
		{"VIOLATION", codesOf(closecodes.CorrectOnce)},
		{"RESTART", codesOf(closecodes.Return)},
		{"BUSY", codesOf(closecodes.ReturnLater)},
	} {
		fmt.Fprintf(&b, "export const %s = [%s];\n", list.name, join(list.codes))
	}
	fmt.Fprintf(&b, "export const UNAUTHENTICATED = %s;\n\n", join(codesOf(closecodes.Authenticate)))
	for _, delay := range []struct {
		name string
		d    time.Duration
	}{
		{"LEAST_DELAY_MS", closecodes.LeastDelay},
		{"MIN_BACKOFF_MS", closecodes.MinBackoff},
		{"MAX_BACKOFF_MS", closecodes.MaxBackoff},
		{"BUSY_BACKOFF_MS", closecodes.BusyBackoff},
		{"RESTART_SPREAD_MS", closecodes.ReturnSpread},
		{"HEALTHY_AFTER_MS", closecodes.HealthyAfter},
	} {
		fmt.Fprintf(&b, "export const %s = %s;\n", delay.name, thousands(delay.d.Milliseconds()))
	}
	return b.String()
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d_%03d", n/1000, n%1000)
}

func codesOf(reaction closecodes.Reaction) (codes []int) {
	for _, r := range closecodes.Rules {
		if r.Reaction == reaction {
			codes = append(codes, r.Codes...)
		}
	}
	return codes
}

func join(codes []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(codes), " ", ", "), "[]")
}
