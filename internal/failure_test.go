package internal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// A loop wraps itself.
type loop struct{}

func (loop) Error() string   { return "loop" }
func (l loop) Unwrap() error { return l }

type limitError struct{ error }

func TestTree_WithoutAnEndPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"Is":         func() { failure.Is(loop{}, errors.New("other")) },
		"AsType":     func() { _, _ = failure.AsType[*limitError](loop{}) },
		"FindPublic": func() { failure.FindPublic[*limitError](loop{}) },
	} {
		t.Run(name, func(t *testing.T) {
			assert.PanicsWithValue(t, "router: an error wraps more than 1000 errors, perhaps itself", f)
		})
	}
	assert.Equal(t, "a internal_test.loop", failure.Loggable(loop{}, "text"))
}

// TestFindPublic_LimitsComeFirst has a limit behind a coded error.
func TestFindPublic_LimitsComeFirst(t *testing.T) {
	coded := errors.Errorf(errors.NotFound, "no such room")
	limit := &limitError{errors.New("limit")}
	found := failure.FindPublic[*limitError](fmt.Errorf("first: %w", errors.Join(coded, limit)))
	assert.Equal(t, failure.Public[*limitError]{Limit: limit, Limited: true}, found)

	found = failure.FindPublic[*limitError](fmt.Errorf("second: %w", coded))
	assert.Nil(t, found.Limit)
	assert.ErrorIs(t, found.Coded, coded)

	found = failure.FindPublic[*limitError](errors.Join(coded, loop{}))
	assert.True(t, found.IsCoded, "a long tree with a coded error is no mistake")
}

func TestLoggable_ReplacesWhatIsQuoted(t *testing.T) {
	quote := failure.Quote(errors.New(`unexpected "secret"`), "unexpected value")
	err := fmt.Errorf("decode: %w", quote)
	assert.Equal(t, "decode: unexpected value", failure.Loggable(err, err.Error()))
	assert.Equal(t, "a *fmt.wrapError: unexpected value", failure.Loggable(err, "the application has changed the text"))
}

func TestJoinFields_KeepsAnErrorWithoutFields(t *testing.T) {
	first := errors.Errorf(errors.InvalidArgument, "wrong")
	assert.Same(t, first, failure.JoinFields(first, first))
	a, b := errors.InvalidField("a", "is missing"), errors.InvalidField("b", "is missing")
	joined := failure.JoinFields(a, errors.Join(a, b))
	assert.Len(t, errors.DetailsOf[errors.FieldDetails](joined).Fields, 2)
	assert.Nil(t, errors.DetailsOf[errors.FieldDetails](a).Fields, "the original is not changed")
}

// TestWithoutAnswer_ReplacesTheWordsOfAClient but not those of an application that has looked at them.
func TestWithoutAnswer_ReplacesTheWordsOfAClient(t *testing.T) {
	answered := &errors.Error{Code: errors.Unauthenticated, Message: "log in", Err: &failure.ClientAnswer{ConnID: "c1"}}
	got := failure.WithoutAnswer(answered)
	assert.Equal(t, errors.FailedPrecondition, got.Code)
	assert.NotContains(t, got.Message, "log in")
	assert.ErrorIs(t, got, answered)
	own := &errors.Error{Code: "NO", Err: answered}
	assert.Same(t, own, failure.WithoutAnswer(own))
}

func TestPanicError_TextOmitsValuesThatMayBeMessages(t *testing.T) {
	secret := struct{ Text string }{"secret"}
	for text, value := range map[string]any{
		"panic: out of range":                "out of range",
		"panic: unexpected value":            failure.Quote(errors.New(`unexpected "secret"`), "unexpected value"),
		"panic: a struct { Text string }":    secret,
		"panic: a *internal_test.limitError": &limitError{}, // its method panics
	} {
		assert.Equal(t, text, failure.NewPanic(value, nil).Error())
	}
	assert.Equal(t, "<nil>", (*errors.PanicError)(nil).Error())
}

func TestShorten_KeepsWholeCharacters(t *testing.T) {
	for limit, want := range []string{"…", "a…", "a…", "aé…", "aéb"} {
		assert.Equal(t, want, failure.Shorten("aéb", limit))
	}
}

func TestJoin_KeepsASingleError(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	assert.NoError(t, failure.Join(nil, nil))
	assert.Same(t, a, failure.Join(a, nil))
	assert.Same(t, b, failure.Join(nil, b))
	both := failure.Join(a, b)
	assert.ErrorIs(t, both, a)
	assert.ErrorIs(t, both, b)
}
