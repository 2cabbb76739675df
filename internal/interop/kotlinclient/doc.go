// Package kotlinclient tests the Kotlin client: its own tests, with a real server and a program in Java, its style, its jars, the types
// of a contract, and the bot of the examples. The scenarios are in package clienttest.
package kotlinclient
