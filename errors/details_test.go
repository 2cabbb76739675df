package errors_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
)

func TestDetailsOf_ReturnsTypedDetails(t *testing.T) {
	full := RoomFull{Capacity: 50}
	for name, tt := range map[string]struct {
		err  error
		want RoomFull
	}{
		"nil":                 {nil, RoomFull{}},
		"no code":             {errors.New("full"), RoomFull{}},
		"nil error":           {(*errors.Error)(nil), RoomFull{}},
		"no details":          {errors.Errorf("ROOM_FULL", "full"), RoomFull{}},
		"of the type":         {&errors.Error{Code: "ROOM_FULL", Details: full}, full},
		"wrapped":             {fmt.Errorf("join: %w", &errors.Error{Code: "ROOM_FULL", Details: full}), full},
		"pointer":             {&errors.Error{Code: "ROOM_FULL", Details: &full}, full},
		"received":            {&errors.Error{Code: "ROOM_FULL", Details: map[string]any{"capacity": 50.0, "since": "today"}}, full},
		"of another type":     {&errors.Error{Code: "ROOM_FULL", Details: map[string]any{"capacity": "many"}}, RoomFull{}},
		"fits in part":        {&errors.Error{Code: "ROOM_FULL", Details: map[string]any{"capacity": 1.5}}, RoomFull{}},
		"cannot be encoded":   {&errors.Error{Code: "ROOM_FULL", Details: map[string]any{"capacity": math.Inf(1)}}, RoomFull{}},
		"is no object at all": {&errors.Error{Code: "ROOM_FULL", Details: 50}, RoomFull{}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, errors.DetailsOf[RoomFull](tt.err))
		})
	}
}
