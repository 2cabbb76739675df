// Package docs has the parts of the documentation that programs read.
package docs

import _ "embed"

// Protocol is protocol.json, the messages of the protocol as data.
//
//go:embed protocol.json
var Protocol []byte
