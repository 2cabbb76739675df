package clienttest_test

import "github.com/penstock-go/penstock/internal/conformance"

type (
	driver        = conformance.Driver
	command       = conformance.Command
	event         = conformance.Event
	clientOptions = conformance.ClientOptions
	callOptions   = conformance.CallOptions
	topicOptions  = conformance.TopicOptions
)
