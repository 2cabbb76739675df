package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router/routertest"
)

// testBoard calls test in a synctest bubble.
func testBoard(t *testing.T, test func(t *testing.T, b *board)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBoard()) })
}

func (b *board) connect(t *testing.T, name string) *routertest.Conn {
	t.Helper()
	return routertest.Dial(t, b.router, routertest.Token(name))
}

// notes returns the notes on the board, oldest first.
func (b *board) notes(t *testing.T) []Note {
	t.Helper()
	stored, _, err := b.router.ReadState(t.Context(), topic)
	require.NoError(t, err)
	notes := make([]Note, len(stored))
	for i, s := range stored {
		require.NoError(t, s.Decode(&notes[i]))
	}
	return notes
}

func TestBoard_NotesReachSubscribers(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		ann, bob := b.connect(t, "ann"), b.connect(t, "bob")
		routertest.Subscribe(bob, topic)
		assert.Equal(t, NotePosted{"ann/1"}, routertest.Call[NotePosted](ann, PostNote{"1", "hello"}))
		note := Note{"ann/1", "ann", "hello", time.Now().UTC()}
		assert.Equal(t, note, routertest.Receive[Note](bob))
		assert.Equal(t, []Note{note}, b.notes(t))
	})
}

func TestBoard_RepeatedNoteIsAddedOnce(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		first, second := b.connect(t, "ann"), b.connect(t, "ann")
		routertest.Call[NotePosted](first, PostNote{"1", "hello"})
		routertest.Call[NotePosted](second, PostNote{"1", "hello"})
		_, position, err := b.router.ReadState(t.Context(), topic)
		require.NoError(t, err)
		assert.EqualValues(t, 1, position.Offset)
	})
}

func TestBoard_UsersCannotReplaceNotesOfOthers(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		routertest.Call[NotePosted](b.connect(t, "ann"), PostNote{"1", "hello"})
		routertest.Call[NotePosted](b.connect(t, "bob"), PostNote{"1", "hi"})
		assert.Len(t, b.notes(t), 2)
	})
}

func TestBoard_FullBoardLosesOldestNote(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		ann := b.connect(t, "ann")
		for i := range maxNotes + 1 {
			routertest.Call[NotePosted](ann, PostNote{fmt.Sprint(i), "hello"})
			time.Sleep(2 * time.Second)
		}
		notes := b.notes(t)
		assert.Len(t, notes, maxNotes)
		assert.Equal(t, "ann/1", notes[0].ID)
	})
}

func TestBoard_LimitsHoldPerConnectionAndPerUser(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		id := 0
		check := func(name string, wantAccepted int) {
			conn := b.connect(t, name)
			for range wantAccepted {
				id++
				routertest.Call[NotePosted](conn, PostNote{fmt.Sprint(id), "hello"})
			}
			err := routertest.CallError(conn, PostNote{"rejected", "hello"})
			assert.Equal(t, errors.ResourceExhausted, err.Code)
			assert.Equal(t, 2*time.Second, err.RetryAfter)
		}
		for _, wantAccepted := range []int{3, 3, 3, 1, 0} {
			check("ann", wantAccepted)
		}
		check("bob", 3)
	})
}

func TestBoard_InvalidNotesAreRejected(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		for _, m := range []PostNote{{"", "hello"}, {"1", ""}, {strings.Repeat("1", 65), "hello"}} {
			assert.Equal(t, errors.InvalidArgument, routertest.CallError(b.connect(t, "ann"), m).Code)
		}
		assert.Equal(t, errors.InvalidArgument, routertest.CallError(b.connect(t, "ann"), PostNote{"1", strings.Repeat("x", 201)}).Code)
		assert.Empty(t, b.notes(t))
	})
}

func TestBoard_LimitOfConnectionIsAnnounced(t *testing.T) {
	testBoard(t, func(t *testing.T, b *board) {
		limits := b.connect(t, "ann").Greet().Limits
		require.Len(t, limits, 1)
		assert.Equal(t, "connection", limits[0].Name)
	})
}
