// Package kotlinclient tests the Kotlin client: its own tests, with a real server and a program in Java, its style and its jars. The
// scenarios are in package clienttest.
package kotlinclient
