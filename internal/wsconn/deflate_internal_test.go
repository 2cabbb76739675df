package wsconn

import (
	"runtime"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeflater_CompressorsFollowGOMAXPROCS changes it while all compressors are in use.
func TestDeflater_CompressorsFollowGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	assert.GreaterOrEqual(t, cap(NewDeflater(1, 0).writers), runtime.NumCPU())
	d := &Deflater{writers: make(chan *flate.Writer, 2)}
	assert.Nil(t, d.writer(), "the only one is created")
	runtime.GOMAXPROCS(3)
	assert.Nil(t, d.writer(), "one more for the second processor")
	first, err := flate.NewWriter(nil, flate.BestSpeed)
	require.NoError(t, err)
	waiting := make(chan *flate.Writer)
	go func() { waiting <- d.writer() }()
	select {
	case <-waiting:
		t.Error("there are more compressors than room for them")
	case d.writers <- first:
		assert.Same(t, first, <-waiting)
	}
}
