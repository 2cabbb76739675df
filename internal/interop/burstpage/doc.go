// Package burstpage tests that a page stays responsive while many messages arrive at once.
package burstpage
