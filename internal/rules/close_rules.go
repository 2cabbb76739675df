// Code generated from docs/protocol.json. DO NOT EDIT.

package rules

// CloseRules is the table.
//
//nolint:gochecknoglobals // never changed
var CloseRules = []CloseRule{
	{Codes: []int{1000, 1001}, Cause: "the application, or the client itself, has closed it", Note: "unless it has closed the connection itself"},
	{Codes: []int{1005, 1006}, Cause: "a close frame without a code, or no close frame: the network, a proxy, or a rejected handshake", Unsent: true},
	{Codes: []int{1002, 1003, 1007}, Cause: "the client violated RFC 6455, or sent a text message or a close reason that was not valid UTF-8", Reaction: CorrectOnce},
	{Codes: []int{1008}, Cause: "a message took too long to arrive, or there were too many control frames or frames without data"},
	{Codes: []int{1009}, Cause: "a message was above the read limit, or above the message limit if the server is configured to close", Note: "and not send the message again"},
	{Codes: []int{1011}, Cause: "the server failed to open the connection"},
	{Codes: []int{1012}, Cause: "the server restarts", Reaction: Return},
	{Codes: []int{1013}, Cause: "the client read too slowly, or exceeded another limit and the server is configured to close, or it is unknown whether the user may still be connected", Reaction: ReturnLater},
	{Codes: []int{4401}, Cause: "the credentials are missing, expired or invalid (UNAUTHENTICATED)", Reaction: Authenticate},
	{Codes: []int{4403}, Cause: "the identity lacks the permission, or the page is of another origin (PERMISSION_DENIED)", Reaction: Stop},
	{Codes: []int{4409}, Cause: "another connection has resumed the session (section 12)", Reaction: Stop, Note: "the other connection has taken over"},
	{Codes: []int{4429}, Cause: "a limit was exceeded, for example too many connections (RESOURCE_EXHAUSTED)", Reaction: ReturnLater},
	{Codes: []int{4503}, Cause: "the server is shutting down, or cannot reach something that it depends on (UNAVAILABLE)", Reaction: Return},
	{Codes: []int{4400, 4500, 4501}, Cause: "any other error of the status 400, 500 or 501 in section 6"},
	{Cause: "defined by the application", Note: "unless the application has said that the code is final"},
}
