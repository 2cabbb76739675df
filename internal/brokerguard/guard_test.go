package brokerguard_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/brokerguard"
)

// TestGuards_ReportThePanicsOfAllMethods calls every method of a node and of histories that panic
// always, because they are nil.
func TestGuards_ReportThePanicsOfAllMethods(t *testing.T) {
	cause := errors.New("the cause")
	var reported []string
	report := func(method string, v any) error {
		assert.NotNil(t, v)
		reported = append(reported, method)
		return cause
	}
	codes := map[string]errors.Code{
		"Publish": "", "Close": "",
		"Append": broker.OutcomeUnknown, "StoreValue": broker.OutcomeUnknown, "PatchValue": broker.OutcomeUnknown,
		"Read": errors.Internal, "ReadAll": errors.Internal, "ReadState": errors.Internal, "LoadValue": errors.Internal,
	}
	var silent struct {
		broker.Node
		broker.Histories
	}
	for _, guarded := range []any{brokerguard.Node(silent.Node, report), brokerguard.Histories(silent.Histories, report)} {
		methods := reflect.TypeOf(guarded)
		for i := range methods.NumMethod() {
			name := methods.Method(i).Name
			if name == "Name" { // it is called when the program starts
				continue
			}
			reported = nil
			hasError, err := callMethod(reflect.ValueOf(guarded).Method(i))
			assert.Equal(t, []string{"Broker." + name}, reported)
			code, known := codes[name]
			assert.Equal(t, hasError, known, name)
			if code == "" {
				assert.NoError(t, err, name)
				continue
			}
			assert.Equal(t, code, errors.CodeOf(err), name)
			assert.ErrorIs(t, err, cause, name)
		}
	}
}

// callMethod calls a method with zero values, and returns whether it has an error, and that.
func callMethod(method reflect.Value) (hasError bool, err error) {
	args := make([]reflect.Value, method.Type().NumIn())
	for i := range args {
		args[i] = reflect.Zero(method.Type().In(i))
		if args[i].Type() == reflect.TypeFor[context.Context]() {
			args[i] = reflect.ValueOf(context.Background())
		}
	}
	for _, result := range method.Call(args) {
		if result.Type() == reflect.TypeFor[error]() {
			hasError = true
			err, _ = reflect.TypeAssert[error](result)
		}
	}
	return hasError, err
}
