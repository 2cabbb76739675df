//go:build unix

// Package faults_test runs processes with a router each on real Redis servers, injects faults, and compares what each
// client has received with what the history has.
package faults_test

import (
	"bufio"
	"os"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
)

const (
	wait           = time.Minute // for everything that must happen at some time
	shutdownWithin = 5 * time.Second
)

// A nodeSpec says how a node process reaches Redis.
type nodeSpec struct {
	Name   string
	Kind   redisKind
	Addrs  []string // of the server, the sentinels, or nodes of the cluster
	Master string   // the sentinels' name of the master

	Durability broker.Durability // of the topics of recovery tests that begin with "safe"
}

type redisKind string

const (
	single   redisKind = "single"
	sentinel redisKind = "sentinel"
	cluster  redisKind = "cluster"
)

func (s *nodeSpec) client() goredis.UniversalClient {
	switch s.Kind {
	case sentinel:
		return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: s.Master, SentinelAddrs: s.Addrs})
	case cluster:
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: s.Addrs})
	default:
		return goredis.NewClient(&goredis.Options{Addr: s.Addrs[0]})
	}
}

func readCommands(commands chan<- string) {
	defer close(commands)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		commands <- lines.Text()
	}
}

func now() int64 { return time.Now().UnixNano() }
