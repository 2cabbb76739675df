// Package durablestreams runs the published tests of the Durable Streams protocol against package
// durablestreams. The tests write by PUT, POST and DELETE, which the handler does not do: a front translates
// these into runs and publications.
package durablestreams
