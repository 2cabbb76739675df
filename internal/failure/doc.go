// Package failure splits errors into what a client may see and what stays on the server. It calls
// methods of application code, which may panic or form trees without an end: callers recover
// panics, and the functions bound the trees.
package failure
