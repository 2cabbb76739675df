// Package kotlinclient tests the Kotlin client: its own tests, with a real server and a program in Java, its style, its jars, and the
// types of a contract. The
// scenarios are in package clienttest.
package kotlinclient
