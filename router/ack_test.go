package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestAck_FollowsAdmissionAndPrecedesReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{Limits: router.Limits{Concurrency: 1}})
		client := routertest.Dial(t, s)
		for _, tt := range []struct{ text, then string }{
			{`{"type":"BLOB","meta":{"correlationId":"1","ack":true},"payload":{"n":1,"text":""}}`, ""},
			{`{"type":"__heartbeat","meta":{"correlationId":"2","ack":true}}`, "__heartbeat_ack"},
			{`{"type":"$ws:abort","meta":{"correlationId":"3","ack":true}}`, ""},
			{`{"type":"ECHO","meta":{"correlationId":"4","ack":true},"payload":{"n":1}}`, ""}, // waits behind the event
		} {
			client.SendText(tt.text)
			frame := client.Next()
			assert.Equal(t, "$ws:ack", frame.Type, tt.text)
			assert.NotEmpty(t, frame.Meta.CorrelationID, tt.text)
			assert.NotZero(t, frame.Meta.Timestamp)
			assert.Nil(t, frame.Payload)
			if tt.then != "" {
				assert.Equal(t, tt.then, client.Next().Type)
			}
		}
		client.SendText(`{"type":"ECHO","meta":{"correlationId":"5","ack":true},"payload":{"n":1}}`)
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(client).Code, "a rejected message is not acknowledged")
		close(s.proceed)
		assert.Equal(t, "4", client.Next().Meta.CorrelationID)
		synctest.Wait()
		assert.Zero(t, client.Pending())
		assert.EqualValues(t, 5, s.charged.Load(), "acknowledgments cost nothing")
	})
}

func TestAck_OfRejectedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		close(s.proceed)
		s.UseIngress(func(_ context.Context, in router.IngressContext) error {
			if in.Type == "BLOB" {
				return errors.Errorf(errors.PermissionDenied, "no")
			}
			return nil
		})
		client := routertest.Dial(t, s)
		for text, want := range map[string]errors.Code{
			`{"type":"BLOB","meta":{"correlationId":"1","ack":true},"payload":{}}`: errors.PermissionDenied,
			`{"type":"NONE","meta":{"correlationId":"1","ack":true},"payload":{}}`: errors.Unimplemented,
			`{"type":"ECHO","meta":{"ack":true},"payload":{"n":1}}`:                errors.InvalidArgument,
			`{"type":"__heartbeat","meta":{"ack":true}}`:                           errors.InvalidArgument,
			`{"type":"ECHO","meta":{"correlationId":"1","ack":1}}`:                 errors.InvalidArgument,
		} {
			client.SendText(text)
			assert.Equal(t, want, routertest.ReceiveError(client).Code, text)
		}
		// Validation follows the acknowledgment.
		client.SendText(`{"type":"ECHO","meta":{"correlationId":"1","ack":true},"payload":{"n":"x"}}`)
		assert.Equal(t, "$ws:ack", client.Next().Type)
		assert.Equal(t, errors.InvalidArgument, routertest.ReceiveError(client).Code)
		synctest.Wait()
		assert.Zero(t, client.Pending())
	})
}

// TestAck_ConfirmsInOrder sends acknowledged messages and others, as a client that paces itself does.
func TestAck_ConfirmsInOrder(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	router.On(r, func(*router.Context, Blob) error { return nil })
	ws := dialServer(t, newTestServer(t, r))
	go func() {
		for n := range 1000 {
			ack := ""
			if n%10 == 9 {
				ack = `,"ack":true`
			}
			write(t, ws, 1, fmt.Sprintf(`{"type":"BLOB","meta":{"correlationId":"%d"%s},"payload":{"n":1,"text":""}}`, n, ack))
		}
	}()
	for n := 9; n < 1000; n += 10 {
		assert.Contains(t, read(t, ws), fmt.Sprintf(`"correlationId":"%d"`, n))
	}
}
