package aichatpage_test

import (
	"testing"

	"github.com/penstock-go/penstock/internal/interop/exampletest"
)

var program = exampletest.Example{Name: "aichat"}

func TestMain(m *testing.M) { program.Main(m) }
