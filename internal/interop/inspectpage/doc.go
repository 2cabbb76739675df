// Package inspectpage tests the page of package inspect in Chromium.
package inspectpage
