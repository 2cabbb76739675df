package rules_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "writes what is generated from docs/protocol.json")

// TestRules_AreThoseOfTheProtocol compares the table with docs/protocol.json.
func TestRules_AreThoseOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.json")
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
	b.WriteString("// Code generated from docs/protocol.json. DO NOT EDIT.\n\npackage rules\n\n// CloseRules is the table.\n//\n//nolint:gochecknoglobals // never changed\nvar CloseRules = []CloseRule{\n")
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
		require.NoError(t, os.WriteFile("close_rules.go", []byte(b.String()), 0o600))
		return
	}
	code, err := os.ReadFile("close_rules.go")
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(code), "rules.go is not what docs/protocol.json says: run go test ./internal -update")
}

// TestTable_IsInTheDocumentsAndTheClients compares what is generated from the table with the files.
func TestTable_IsInTheDocumentsAndTheClients(t *testing.T) {
	for _, generated := range []struct{ path, begin, text, end string }{
		{"../../docs/protocol.md", "<!-- close codes: begin -->\n", table(), "<!-- close codes: end -->"},
		{"../../docs/writing-a-client.md", "// Section 5 of the protocol.\n", sample(), "\n"},
		{"../../clients/ts/src/closecodes.ts", "", typeScript(), ""},
		{"../../clients/python/src/penstock_client/_closecodes.py", "", python(), ""},
		{"../../clients/kotlin/src/main/kotlin/penstock/client/CloseCodes.kt", "", kotlin(), ""},
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

func table() string {
	var b strings.Builder
	b.WriteString("| code | the connection is closed because | a client SHOULD |\n| --- | --- | --- |\n")
	for _, r := range rules.CloseRules {
		codes := "others from 4000 to 4999"
		if r.Codes != nil {
			codes = join(r.Codes)
		}
		advice := reactions[r.Reaction]
		if r.Note != "" {
			separator := ", "
			if r.Reaction == rules.Stop {
				separator = ": "
			}
			advice += separator + r.Note
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", codes, r.Cause, advice)
	}
	return b.String()
}

var reactions = map[rules.Reaction]string{
	rules.Reconnect:    "reconnect with backoff",
	rules.CorrectOnce:  "reconnect with backoff, and stop if the next connection ends with one of these codes, too: a retry does not correct the client",
	rules.Authenticate: "get new credentials and reconnect with backoff, and stop if the next connection ends like this, too",
	rules.Return:       "reconnect with backoff; without a delay in the reason, the first time after a random time of up to " + seconds(rules.ReturnSpread) + " more",
	rules.ReturnLater:  "reconnect with backoff; without a delay in the reason, with a backoff from " + seconds(rules.BusyBackoff) + " on",
	rules.Stop:         "stop",
}

func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }

// sample returns the declaration of the sample in the guide.
func sample() string {
	twice := slices.Sorted(slices.Values(append(codesOf(rules.CorrectOnce), codesOf(rules.Authenticate)...)))
	return fmt.Sprintf("const STOP = [%s], STOP_AT_SECOND = [%s], RESTART = [%s], BUSY = [%s]",
		join(codesOf(rules.Stop)), join(twice), join(codesOf(rules.Return)), join(codesOf(rules.ReturnLater)))
}

// typeScript returns the constants of the TypeScript client.
func typeScript() string {
	var b strings.Builder
	b.WriteString("// Code generated from docs/protocol.json. DO NOT EDIT.\n\n")
	for _, list := range closeLists() {
		fmt.Fprintf(&b, "export const %s = [%s];\n", list.name, join(list.codes))
	}
	fmt.Fprintf(&b, "export const UNAUTHENTICATED = %s;\n\n", join(codesOf(rules.Authenticate)))
	for _, delay := range delays() {
		fmt.Fprintf(&b, "export const %s_MS = %s;\n", delay.name, thousands(delay.d.Milliseconds()))
	}
	return b.String()
}

// python returns the constants of the Python client.
func python() string {
	var b strings.Builder
	b.WriteString("# Code generated from docs/protocol.json. DO NOT EDIT.\n\n")
	for _, list := range closeLists() {
		fmt.Fprintf(&b, "%s = (%s)\n", list.name, join(list.codes))
	}
	fmt.Fprintf(&b, "UNAUTHENTICATED = %s\n\n", join(codesOf(rules.Authenticate)))
	for _, delay := range delays() {
		fmt.Fprintf(&b, "%s = %g\n", delay.name, delay.d.Seconds())
	}
	return b.String()
}

// kotlin returns the constants of the Kotlin client.
func kotlin() string {
	var b strings.Builder
	b.WriteString("// Code generated from docs/protocol.json. DO NOT EDIT.\n\npackage penstock.client\n\n")
	for _, list := range closeLists() {
		fmt.Fprintf(&b, "internal val %s = setOf(%s)\n", list.name, join(list.codes))
	}
	fmt.Fprintf(&b, "internal const val UNAUTHENTICATED = %s\n\n", join(codesOf(rules.Authenticate)))
	for _, delay := range delays() {
		fmt.Fprintf(&b, "internal const val %s = %.1f\n", delay.name, delay.d.Seconds())
	}
	return b.String()
}

type closeList struct {
	name  string
	codes []int
}

// closeLists are the lists of close codes that clients distinguish.
func closeLists() []closeList {
	return []closeList{
		{"STOP", codesOf(rules.Stop)},
		{"VIOLATION", codesOf(rules.CorrectOnce)},
		{"RESTART", codesOf(rules.Return)},
		{"BUSY", codesOf(rules.ReturnLater)},
	}
}

type delay struct {
	name string
	d    time.Duration
}

// delays are those of reconnections.
func delays() []delay {
	return []delay{
		{"LEAST_DELAY", rules.LeastDelay},
		{"MIN_BACKOFF", rules.MinBackoff},
		{"MAX_BACKOFF", rules.MaxBackoff},
		{"BUSY_BACKOFF", rules.BusyBackoff},
		{"RESTART_SPREAD", rules.ReturnSpread},
		{"HEALTHY_AFTER", rules.HealthyAfter},
	}
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d_%03d", n/1000, n%1000)
}

func codesOf(reaction rules.Reaction) (codes []int) {
	for _, r := range rules.CloseRules {
		if r.Reaction == reaction {
			codes = append(codes, r.Codes...)
		}
	}
	return codes
}

func join(codes []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(codes), " ", ", "), "[]")
}
