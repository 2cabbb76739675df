// Package runs reads and stops the runs of a server that uses package run, such as the answer of a
// language model while it is generated. A reader receives every item once and in order: after a lost
// connection or a restart of the server, it continues behind the last one.
//
//	r := runs.Attach[Token](c, "answer/42", nil)
//	for part, err := range r.Parts(ctx) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(part.Item.Text)
//	}
//	end, _ := r.End()
//
// A server merges what a reader has not taken yet, if it has run.Options.Merge. The package is not
// available for GOOS=js, as package client.
package runs
