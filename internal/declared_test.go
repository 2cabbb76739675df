package internal_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/declared"
)

func message(name string, value any, position string) declared.Message {
	return declared.Message{Name: name, Type: reflect.TypeOf(value), Position: position}
}

func call(name string, value, reply any) declared.Call {
	return declared.Call{Message: message(name, value, "a.go:1"), Reply: message("REPLY", reply, "a.go:1")}
}

func TestMessages_NamesHaveOneMeaning(t *testing.T) {
	for want, declare := range map[string]func(ms *declared.Messages){
		`router: "NOTE" is declared as int at a.go:1, and as string at b.go:2; a type can have only one meaning`: func(ms *declared.Messages) {
			ms.AddSent(message("NOTE", 1, "a.go:1"))
			ms.AddSent(message("NOTE", "", "b.go:2"))
		},
		`router: the call "ASK" is declared as int with the reply bool at a.go:1, and as string with the reply bool at a.go:1; a type can have only one meaning`: func(ms *declared.Messages) {
			ms.AddCall(call("ASK", 1, true))
			ms.AddCall(call("ASK", "", true))
		},
		`router: the call "ASK" is declared as int with the reply bool at a.go:1, and as int with the reply string at a.go:1; a type can have only one meaning`: func(ms *declared.Messages) {
			ms.AddCall(call("ASK", 1, true))
			ms.AddCall(call("ASK", 1, ""))
		},
	} {
		assert.PanicsWithValue(t, want, func() { declare(new(declared.Messages)) })
	}
}

func TestMessages_MessagesAndCallsAreApart(t *testing.T) {
	var ms declared.Messages
	sent, calls := ms.List()
	assert.Empty(t, sent)
	assert.Empty(t, calls)
	ms.AddCall(call("NOTE", "", true))
	assert.True(t, ms.Calls("NOTE"))
	assert.False(t, ms.Sends("NOTE"))
	assert.False(t, ms.SendsAny())
	ms.AddSent(message("NOTE", 1, "a.go:1"))
	assert.True(t, ms.Sends("NOTE"))
	assert.True(t, ms.SendsAny())
	assert.False(t, ms.Calls("OTHER"))
}

// TestMessages_ListIsSorted declares messages twice, as an application may.
func TestMessages_ListIsSorted(t *testing.T) {
	var ms declared.Messages
	for _, name := range []string{"C", "A", "B", "A"} {
		ms.AddSent(message(name, 1, "a.go:1"))
		ms.AddCall(call(name, 1, true))
	}
	sent, calls := ms.List()
	assert.Equal(t, []declared.Message{message("A", 1, "a.go:1"), message("B", 1, "a.go:1"), message("C", 1, "a.go:1")}, sent)
	assert.Equal(t, []declared.Call{call("A", 1, true), call("B", 1, true), call("C", 1, true)}, calls)
}
