// Package netpoll reads and writes kernel sockets without holding a buffer or a
// goroutine while there is nothing to do. It is the only package that uses epoll,
// raw system calls or unsafe.
//
// A [Socket] borrows a [Buffer] only for bytes that have arrived. A [Poller] reports
// which sockets are readable, so that an idle connection needs no goroutine. Where
// the system offers neither, [NewSocket] returns nil and the caller uses the net.Conn.
package netpoll
