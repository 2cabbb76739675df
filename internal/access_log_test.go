package internal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/access"
)

func TestPrecedes_NumbersOverflow(t *testing.T) {
	assert.True(t, access.Precedes(1<<32-2, 1))
	assert.False(t, access.Precedes(1, 1<<32-2))
	assert.False(t, access.Precedes(7, 7))
}
