package presence_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestDbg(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if os.Getenv("SEED") == "" {
		t.Skip()
	}
	s, names := randomSchedule(t, seed)
	fmt.Println(names)
	for range 40 {
		s.run(500 * time.Millisecond)
		fmt.Println(s.now.Unix(), s.difference())
	}
}
