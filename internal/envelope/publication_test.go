package envelope_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// TestPublication_LacksWhatCannotBeEncoded publishes a message that one of two codecs cannot encode.
func TestPublication_LacksWhatCannotBeEncoded(t *testing.T) {
	var formats envelope.Formats
	formats.Add(testCodec{func(any) ([]byte, error) { return nil, errors.New("broken") }}, "broken.v1")
	formats.Add(constant("x"), "fine.v1")
	p, err := formats.Encode(note{"NOTE", 1}, formats.All())
	defer p.Free()
	require.ErrorContains(t, err, "for the subprotocol broken.v1: broken")
	assert.NotNil(t, p.Frame(envelope.JSON))
	assert.Nil(t, p.Frame(1))
	assert.NotNil(t, p.Frame(2))
	assert.True(t, p.Lacks(formats.All()))
	assert.False(t, p.Lacks(envelope.OnlyJSON|1<<2))
	assert.False(t, p.IsEmpty())
	assert.Nil(t, p.Named(1, "room/go", 0))
	assert.Nil(t, p.Positioned(1, "room/go", 7))

	p, err = formats.Encode(note{"NOTE", 1}, 1<<1)
	require.Error(t, err)
	assert.True(t, p.IsEmpty())
	p.Free()
}

// TestPublication_IsEncodedOncePerForm asks for each form of a message twice.
func TestPublication_IsEncodedOncePerForm(t *testing.T) {
	var formats envelope.Formats
	calls := 0
	formats.Add(testCodec{func(any) ([]byte, error) { calls++; return []byte("x"), nil }}, "test.v1")
	p, err := formats.Encode(keyed{note{"NOTE", 1}, "k"}, formats.All())
	require.NoError(t, err)
	defer p.Free()
	p.SetPolicy(wsconn.Conflate)
	for f := range formats.End() {
		plain, named, positioned := p.Frame(f), p.Named(f, "room/go", 0), p.Positioned(f, "room/go", 7)
		assert.NotSame(t, plain, named)
		assert.NotContains(t, string(plain.Text()), "room/go")
		assert.Contains(t, string(named.Text()), `"topic":"room/go"`)
		assert.NotContains(t, string(named.Text()), `"offset"`)
		assert.Contains(t, string(positioned.Text()), `"topic":"room/go","offset":7`)
		assert.Equal(t, "NOTE\x00k", named.Key(), "it is as droppable as the plain one")
		assert.Empty(t, positioned.Key(), "it is not dropped")
		assert.Same(t, named, p.Named(f, "room/go", 0))
		assert.Same(t, positioned, p.Positioned(f, "room/go", 7))
	}
	assert.Equal(t, 1, calls)
}

func TestFormats_ToPublish(t *testing.T) {
	var formats envelope.Formats
	formats.Add(constant("x"), "test.v1")
	assert.Equal(t, envelope.OnlyJSON, formats.ToPublish(0, false), "so that an error is found")
	assert.Equal(t, envelope.FormatSet(1<<1), formats.ToPublish(1<<1, false))
	assert.Equal(t, formats.All(), formats.ToPublish(0, true))
}
