// Package netpoll runs event loops over kernel sockets. It is the only package that uses epoll,
// raw system calls or unsafe.
//
// A [Poller] moves connections out of Go's poller into its loops, or lets these watch connections
// that stay there (TLS). A loop calls the [Waiter] of each ready socket on its own goroutine, and
// continues on another goroutine if that call blocks.
// An idle connection therefore holds no goroutine, no timer and no [Buffer]. Where the
// system offers no epoll, [Poller.Attach] fails and the caller uses the net.Conn.
package netpoll
