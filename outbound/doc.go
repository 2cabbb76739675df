// Package outbound obeys the limits of somebody else's API, such as Discord's: it sends
// requests no faster than the API's own response headers allow.
//
//	client := &http.Client{Transport: outbound.NewTransport(memory.NewWindows(nil), nil)}
//
// Where several processes share one budget, their windows are in Redis:
// redis.NewWindows(client, "{mybot}:", nil).
//
// # Windows
//
// An API admits so many requests to a route in a window of time, and tells with every
// response how many remain and when the window ends. A [Windows] keeps that, and a
// [Transport] claims a request from it before it sends one. Whoever has to wait claims
// again afterwards; a claim is never reserved.
//
// Nobody knows in which of the server's windows a request counts until its response has
// come: one that is claimed at the end of a window may arrive in the next. Therefore
//
//   - a window lasts until every response in it says that it is over, and
//   - requests that are under way when a window ends are charged to the next as well.
//
// So no window of the server's ever gets more than its limit, whatever the latencies
// are, for as long as a request is answered within a lease. A request that is not is
// taken for lost: that is how long a process that dies can hold up the others.
//
// # What is not known
//
// While the limit of a route is unknown, its requests go one at a time. A success
// without any such headers shows that there is no limit; that is remembered for an hour.
package outbound
