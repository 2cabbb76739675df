package run_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/run"
)

// TestReader_StoredDoesNotWait reads a run on another node before its first item, between its items, and after its end.
func TestReader_StoredDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 2, run.Options[token]{Merge: concat})
		words := make(chan string)
		info, err := all[0].Start(t.Context(), "answer/1", nil, func(_ context.Context, out *run.Output[token]) error {
			for word := range words {
				if err := out.Emit(token{word}); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		reader, err := all[1].Attach(t.Context(), "answer/1", run.From{Run: info.ID})
		require.NoError(t, err)
		defer reader.Close()
		stored := func() (text string) {
			parts, err := reader.Stored(t.Context())
			require.NoError(t, err)
			for _, part := range parts {
				text += part.Item.Text
			}
			return text
		}
		assert.Empty(t, stored())
		for _, word := range []string{"a", "b"} {
			words <- word
			synctest.Wait()
		}
		assert.Equal(t, "a", stored(), "the first item is stored at once, and the second one waits for others")
		assert.Empty(t, stored())
		close(words)
		for part, err := range reader.Parts(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, "b", part.Item.Text)
			break
		}
		synctest.Wait()
		assert.Empty(t, stored())
		assert.Equal(t, run.Completed, reader.Info().State)

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, err := all[1].Attach(t.Context(), "answer/1", run.From{})
		require.NoError(t, err)
		defer late.Close()
		parts, err := late.Stored(canceled)
		require.NoError(t, err, "the log is read already")
		require.Len(t, parts, 1)
		assert.Equal(t, "ab", parts[0].Item.Text)
		assert.EqualValues(t, 2, parts[0].Next())
		assert.Equal(t, run.Completed, late.Info().State)
	})
}
