package durableobject_test

import (
	"testing"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// startServer starts the Worker in workerd, which npm must install first: in the full tier.
func startServer(t testing.TB, options ...func(*workerdtest.Options)) *workerdtest.Server {
	t.Helper()
	testscale.FullOnly(t, "TestLimiter_RequestIsThatOfTheProtocol")
	return workerdtest.Start(t, options...)
}

func TestMain(m *testing.M) { workerdtest.Main(m) }
