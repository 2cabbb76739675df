package executor

// Do calls f. If f calls runtime.Goexit, which ends the goroutine, Do calls exited before: what must
// happen nevertheless is done there. A panic of f passes, without a call of exited.
func Do(f, exited func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		exited()
	}()
	f()
	returned = true
}
