package brokertest

import (
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
)

type FaultyStore struct{ b *memory.Broker }

func Faulty(seed uint64) *FaultyStore                        { return &FaultyStore{memory.NewBroker()} }
func (s *FaultyStore) Node(name string) broker.HistoryBroker { return s.b }
func (s *FaultyStore) CutOff(string)                         {}
func (s *FaultyStore) Heal(string)                           {}
func (s *FaultyStore) HealAll()                              {}
func (s *FaultyStore) Crash(string)                          {}
func (s *FaultyStore) Pause(string, time.Duration)           {}
func (s *FaultyStore) FailOver(int)                          {}
