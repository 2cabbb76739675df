package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A silentEngine carries nothing.
type silentEngine struct{}

func (silentEngine) Channel(kind Kind, name string) Channel {
	return Channel{Name: string(kind) + ":" + name}
}
func (silentEngine) Connect(string, Events) Link { return silentLink{} }

type silentLink struct{}

func (silentLink) Path(int) string                     { return "" }
func (silentLink) Publish(context.Context, []*Message) {}
func (silentLink) SetSubscribed(Channel, bool)         {}
func (silentLink) Probes() []Probe                     { return nil }
func (silentLink) Suspect(Channel)                     {}
func (silentLink) Reconnect(Channel)                   {}
func (silentLink) Close()                              {}

// BenchmarkSession_Receive measures what a node does with each message that the engine has
// received, on one connection and on several.
func BenchmarkSession_Receive(b *testing.B) {
	for _, connections := range []int{1, 2} {
		b.Run(fmt.Sprint(connections), func(b *testing.B) {
			s := New(silentEngine{}).Connect(broker.Callbacks{
				Receive:      func(string, string, []byte) {},
				Subscribed:   func(string) {},
				MessagesLost: func(string, int) {},
				NodeLeft:     func(string) {},
			}).(*Node)
			defer func() { _ = s.Close(b.Context()) }()
			done := make(chan struct{})
			start := time.Now()
			for c := range connections {
				topic := fmt.Sprint("topic ", c)
				s.Subscribe(topic)
				channel := s.engine.Channel(TopicChannel, topic).Name
				go func() {
					for n := range b.N {
						m := nodeMessage{from: "node", kind: kindPacket, epoch: 1, number: uint64(n), packet: make([]byte, 200)}
						s.received(channel, m.encode())
					}
					done <- struct{}{}
				}()
			}
			for range connections {
				<-done
			}
			b.ReportMetric(float64(connections*b.N)/time.Since(start).Seconds(), "messages/s")
		})
	}
}

// BenchmarkSession_Publish measures what a publisher waits for.
func BenchmarkSession_Publish(b *testing.B) {
	s := New(silentEngine{}).Connect(broker.Callbacks{}).(*Node)
	defer func() { _ = s.Close(b.Context()) }()
	packet := make([]byte, 200)
	for b.Loop() {
		_ = s.Publish("topic", packet)
	}
}
