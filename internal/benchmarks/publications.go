package main

import "sync/atomic"

// publicationsName is an environment variable of servers that holds the messages that they publish in
// turn, one per line.
const publicationsName = "BENCHMARKS_PUBLICATIONS"

// publications are those messages. Contenders that cannot compress publish the first one only.
var publications = [][]byte{published}

var publishedCount atomic.Int64

// nextPublication returns the message that a server publishes next.
func nextPublication() []byte { return publications[nextIndex()] }

func nextIndex() int { return int(publishedCount.Add(1)-1) % len(publications) }
