// Package limitfile reads the numbers of limits from a file, and follows its changes while the
// program runs.
//
// The file has one limit per line: the name of the limiter's policy, a colon, and the policy. Blank
// lines and lines that begin with # are ignored.
//
//	# messages of a user
//	chat: 10/s burst 20
//	search: sliding-log 30/m
//	exports: quota 100/day Europe/Berlin
//
// A token bucket is written as [limit.ParsePolicy] describes. A sliding window is sliding-log or
// sliding-counter with a number and a window. The program decides which of both a limiter is: the
// file only has its numbers. A quota has a number per hour, day, week or month, and optionally a
// time zone. "penstock simulate -policies" reads the same lines, and "penstock limits check" reports
// mistakes before a deployment.
//
//	chat := memory.NewLimiter(limit.PerSecond(5).Named("chat"))
//	file, err := limitfile.Load("limits.txt", nil, chat)
//	if err != nil {
//		return err
//	}
//	go file.Run(ctx)
//
// # All or nothing
//
// The file has exactly one line per limiter. A line of a limiter that the program does not have, a
// limiter without a line, and any invalid line are errors. With an error, no limit changes: the
// program keeps those in effect. See [File.Run] and [File.Status].
//
// # Several nodes
//
// Each process reads its own copy of the file, at its own time, as in a rolling deployment. While
// two processes have different numbers for one policy in a common store, a key is granted at most
// what [limit.PolicySetter] promises, and no tokens are created.
package limitfile
