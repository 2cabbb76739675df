package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func runConformance(args ...string) (status int, stdout, stderr string) {
	var out, problems bytes.Buffer
	status = run(append([]string{"conformance"}, args...), strings.NewReader(""), &out, &problems)
	return status, out.String(), problems.String()
}

// deaf returns a driver that claims a level and then does nothing.
func deaf(level string) []string {
	return []string{"--", "sh", "-c", `echo '{"name":"driver","protocol":1,"levels":["` + level + `"]}'; exec cat > /dev/null`}
}

func TestConformance_RejectsWrongArguments(t *testing.T) {
	for problem, args := range map[string][]string{
		"no driver; give its command after --": {},
		`there is no level "all"`:              {"-level", "all", "--", "true"},
		"must be more than 0":                  {"-timeout", "0s", "--", "true"},
		"missing closing )":                    {"-run", "(", "--", "true"},
	} {
		status, _, stderr := runConformance(args...)
		assert.Equal(t, exitUsage, status, problem)
		assert.Contains(t, stderr, problem)
	}
}

func TestConformance_DriverThatCannotBeUsed(t *testing.T) {
	status, stdout, stderr := runConformance("--", "sh", "-c", "echo hello")
	assert.Equal(t, exitFailed, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, `sh: the driver has printed "hello"`)
	status, _, stderr = runConformance(append([]string{"-cbor"}, deaf("minimal")...)...)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "does not have the format cbor")
}

func TestConformance_FailureOfAClaimedLevel(t *testing.T) {
	args := []string{"-run", "^1 ", "-timeout", "3s"}
	status, stdout, stderr := runConformance(append(args, deaf("minimal")...)...)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "a scenario of a level that the driver claims has failed")
	assert.Contains(t, stdout, "failed  minimal    1 connects when it is used\n  step      connecting.txt:7: accept\n  problem   the driver has failed: the scenario has taken longer than the timeout of 3s\n")
	assert.Contains(t, stdout, `R→D {"do":"call"`)
	assert.Regexp(t, `(?m)^ +minimal +0 +1 +24 +true$`, stdout)
	assert.Regexp(t, `(?m)^ +pacing +0 +0 +\d+ +false$`, stdout)

	status, stdout, _ = runConformance(append(append(args, "-level", "minimal"), deaf("streams")...)...)
	assert.Equal(t, exitOK, status, "the driver does not claim the level")
	assert.Regexp(t, `(?m)^ +minimal +0 +1 +24 +false$`, stdout)
}
