// Package page has the files of the chat's page.
package page

import "embed"

// Files are at the root: index.html and what it loads.
//
//go:embed *.html *.css *.js *.svg
var Files embed.FS
