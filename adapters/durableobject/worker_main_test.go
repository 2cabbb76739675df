package durableobject_test

import (
	"testing"

	"github.com/penstock-go/penstock/internal/workerdtest"
)

func TestMain(m *testing.M) { workerdtest.Main(m) }
