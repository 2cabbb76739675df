// Package recorder writes what a router receives to files: the time, a hash of the client, the
// type and the cost of each message. The command "penstock simulate" replays such a trace against
// rate limits and suggests a policy.
//
//	rec, err := recorder.New("/var/lib/app/trace", nil)
//	if err != nil {
//		return err
//	}
//	defer rec.Close()
//	r.UseIngress(rec.Record) // before the limits, so that it records what they reject
//
// # Files
//
// A trace is a directory of CSV files named trace-<UTC time>.csv, whose names sort by time:
//
//	time,key,type,cost
//	1795327200000000,xrkBnVjUGTY,SAY,1
//
// The time is in microseconds since 1970. The key is the first 8 bytes of an HMAC-SHA256 in
// base64url, so that a trace contains no user IDs and no addresses. All files together take at
// most Options.MaxBytes: the oldest are removed, including those of earlier runs.
//
// # Cost
//
// Recording a message appends to a buffer and never waits for the disk. If the disk is too slow for
// the messages, some are not recorded, and counted.
package recorder
