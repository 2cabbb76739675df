// Command board is a shared notice board with two web pages, one in plain TypeScript and one in React. Both use
// the client in clients/ts: typed calls, presence, recovery after a lost connection, and a form that shows when the rate
// limit permits the next note.
//
// Read board.go, then page-ts/main.ts or page-react/main.tsx.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// shutdownTimeout bounds the graceful shutdown.
const shutdownTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends and returns the exit code: 2 for wrong flags, 1 if serving fails.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("board", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "localhost:8080", "address to listen on")
	pages := flags.String("pages", "examples/board/dist", "directory of the built pages")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if _, err := os.Stat(*pages + "/index.html"); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(stderr, "board: -pages: %s has no pages; build them in the root of the repository: npm ci --prefix examples/board\n", *pages)
		return 2
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		fmt.Fprintf(stderr, "board: -addr: %v\n", err)
		return 2
	}
	if err := serve(ctx, listener, newBoard(), os.DirFS(*pages), stdout); err != nil {
		fmt.Fprintf(stderr, "board: %v\n", err)
		return 1
	}
	return 0
}

// serve handles requests until ctx ends, then shuts down gracefully.
func serve(ctx context.Context, listener net.Listener, b *board, pages fs.FS, stdout io.Writer) error {
	httpServer := &http.Server{Handler: newHandler(b, pages), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1) // buffered: Serve also returns after Shutdown, when nothing receives
	go func() { failed <- httpServer.Serve(listener) }()
	fmt.Fprintf(stdout, "board: open http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return errors.Join(b.router.Shutdown(ctx), httpServer.Shutdown(ctx))
}

func newHandler(b *board, pages fs.FS) http.Handler {
	files := http.FileServerFS(pages)
	mux := http.NewServeMux()
	mux.Handle("GET /ws", b.router)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
	return mux
}
