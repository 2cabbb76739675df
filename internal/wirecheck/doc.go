// Package wirecheck checks what a client and a server send each other over one WebSocket, as a passive observer that
// knows the protocol and nothing of the application: each call has one answer, the publications of a topic with
// positions follow each other, and losses are reported.
//
// It reads only the head of messages of the application, so it works with every format of payloads. Compressed
// messages are not observed. Package internal/simtest/rawclient checks more: it knows what it has sent, and shares no
// code with the server that it checks.
//
// A Conn has one lock, under which only the functions of its [Observer] are called.
package wirecheck
