// Package pyclient tests the Python client: its own tests with a real server, its types and its style. The scenarios are in package
// clienttest.
package pyclient
