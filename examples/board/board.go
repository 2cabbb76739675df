package main

import (
	"fmt"
	"net/http"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

type (
	// PostNote adds a note to the board. A client that sends it again with the same ID, because the
	// connection was lost before the answer, adds one note.
	PostNote struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	NotePosted struct {
		ID string `json:"id"`
	}
	// Note is the current state of its ID, so clients that subscribe receive all notes.
	Note struct {
		ID     string    `json:"id"`
		Author string    `json:"author"`
		Text   string    `json:"text"`
		At     time.Time `json:"at"`
	}
	NoteRemoved struct {
		ID string `json:"id"`
	}
)

func (PostNote) MessageType() string    { return "POST_NOTE" }
func (NotePosted) MessageType() string  { return "NOTE_POSTED" }
func (Note) MessageType() string        { return "NOTE" }
func (NoteRemoved) MessageType() string { return "NOTE_REMOVED" }

func (n Note) ConflationKey() string        { return n.ID }
func (n NoteRemoved) ConflationKey() string { return n.ID }

func (m PostNote) Validate() error {
	return errors.Join(checkLength("id", m.ID, 64), checkLength("text", m.Text, 200))
}

// checkLength returns INVALID_ARGUMENT unless value has 1 to maxChars characters.
func checkLength(field, value string, maxChars int) error {
	if n := utf8.RuneCountInString(value); n < 1 || n > maxChars {
		return errors.InvalidField(field, fmt.Sprintf("must have 1 to %d characters", maxChars))
	}
	return nil
}

// topic is the one topic of the board.
const topic = "board"

// maxNotes is how many notes the board has. Clients that subscribe receive all of them, which must fit
// into half of their send queues.
const maxNotes = 50

// A board is the WebSocket endpoint. Its methods handle messages concurrently.
type board struct {
	router  *router.Router
	perUser *memory.Limiter
}

func newBoard() *board {
	b := &board{perUser: memory.NewLimiter(limit.Per(1, 2*time.Second).Burst(10).Named("user"))}
	// The limit per user holds for several pages together, and for those that connect again. It is not
	// announced: a page does not know what other pages have taken, and would wait for longer than necessary.
	limits := []ratelimit.Rule{
		{Limiter: memory.NewLimiter(limit.Per(1, 2*time.Second).Burst(3).Named("connection")), Key: ratelimit.KeyPerConn, Cost: cost},
		{Limiter: b.perUser, Key: ratelimit.KeyPerUser, Cost: cost},
	}
	b.router = router.New(&router.Options{
		Authenticate:       authenticate,
		RefuseAfterUpgrade: true, // pages show the reason
		Limits:             router.Limits{Conns: 10_000, ConnsPerUser: 50},
		AnnounceLimits:     ratelimit.AnnounceAll(limits[:1], nil), // pages know exactly when it permits the next note
	})
	b.router.UseIngress(ratelimit.NewAll(limits, nil))
	router.Topic(b.router, topic, &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: 100, Age: 24 * time.Hour},
		Presence:  true,
		Messages:  []router.Message{Note{}, NoteRemoved{}},
	})
	router.RPC(b.router, b.post)
	return b
}

func cost(in router.IngressContext) int64 {
	if in.Type == (PostNote{}).MessageType() {
		return 1
	}
	return 0
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.\-]{1,32}$`)

// authenticate trusts the token, which is the name of the user: a real application verifies a
// signature here.
func authenticate(r *http.Request) (router.Identity, error) {
	name := router.Token(r)
	if !namePattern.MatchString(name) {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "use a name with 1 to 32 characters of A-Z a-z 0-9 _ . -")
	}
	return router.Identity{UserID: name}, nil
}

func (b *board) post(ctx *router.Context, m PostNote) (NotePosted, error) {
	author := ctx.Conn().Identity().UserID
	if err := b.makeRoom(ctx); err != nil {
		return NotePosted{}, err
	}
	// The ID contains the author, so that users cannot replace each other's notes.
	note := Note{ID: author + "/" + m.ID, Author: author, Text: m.Text, At: ctx.ReceivedAt().UTC()}
	err := b.router.Publish(topic, note, router.IdempotencyKey(note.ID), router.Stored(ctx, nil))
	return NotePosted{note.ID}, err
}

// makeRoom removes the oldest notes if the board is full. Concurrent calls may leave a few notes more,
// until the next one.
func (b *board) makeRoom(ctx *router.Context) error {
	notes, _, err := b.router.ReadState(ctx, topic)
	if err != nil {
		return err
	}
	for len(notes) >= maxNotes {
		var oldest Note
		if err := notes[0].Decode(&oldest); err != nil {
			return err
		}
		if err := b.router.Publish(topic, NoteRemoved{oldest.ID}, router.Removed(), router.Stored(ctx, nil)); err != nil {
			return err
		}
		notes = notes[1:]
	}
	return nil
}
