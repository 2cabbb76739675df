package clienttest_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/conformance"
	"github.com/penstock-go/penstock/internal/interop/kotlintest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// kotlinScale is how much faster the clock of the Kotlin client runs.
const kotlinScale = 5

// kotlinDrivers bounds the drivers that run at the same time: each virtual machine compiles its program while it begins.
var kotlinDrivers = make(chan struct{}, 3)

// startKotlin starts the driver of the Kotlin client.
func startKotlin(t *testing.T, scale int) *conformance.Process {
	t.Helper()
	build := kotlintest.Find(t)
	kotlinDrivers <- struct{}{}
	t.Cleanup(func() { <-kotlinDrivers })
	command := build.Driver(t.Context(), strconv.Itoa(scale))
	command.Stderr = os.Stderr
	d, err := conformance.StartProcess(command, 5*time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { d.Stop() })
	return d
}

func TestScenarios_KotlinClient(t *testing.T) {
	kotlintest.Find(t)
	for _, s := range testscale.Sample(scenariosOf("Kotlin", webSocket), 8) {
		t.Run(title(s), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			run(t, s, startKotlin(t, kotlinScale), conformance.Config{
				Listener: listener, URL: "ws://" + listener.Addr().String() + "/", Scale: kotlinScale, Limit: 30 * time.Second,
			})
		})
	}
}

func TestFaults_KotlinClient(t *testing.T) {
	kotlintest.Find(t)
	var inJSON []faultCase
	for _, f := range faultCases {
		if !f.cbor {
			inJSON = append(inJSON, f)
		}
	}
	for _, f := range testscale.SoakSample(inJSON, testscale.Pick(1, len(inJSON))) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			runFaults(t, startKotlin(t, 10), 10, f)
		})
	}
}

func TestKotlinDriver_IsShort(t *testing.T) {
	text, err := os.ReadFile("../../../clients/kotlin/src/test/kotlin/penstock/client/Driver.kt")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 200, "lines")
}
