// Package site tests the documentation site that website/ builds: its pages, links, search, colors and
// accessibility.
package site
