package limitfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limitfile"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	path := filepath.Join(dir, "limits.txt")
	if err := os.WriteFile(path, []byte("# messages of a user\nchat: 10/s burst 20\n"), 0o600); err != nil {
		panic(err)
	}

	chat := memory.NewLimiter(limit.PerSecond(5).Named("chat"))
	file, err := limitfile.Load(path, nil, chat)
	if err != nil {
		panic(err)
	}
	fmt.Println(chat.Describe()[0].Limit)

	if err := os.WriteFile(path, []byte("chat: 10/s burst 200\nsearch: 1/s\n"), 0o600); err != nil {
		panic(err)
	}
	if err := file.Reload(); err != nil { // go file.Run(ctx) reads the file every five seconds
		fmt.Println(file.Status().Err != nil, chat.Describe()[0].Limit)
	}
	// Output:
	// 20
	// true 20
}
