//go:build !linux

package main

import (
	"errors"
	"net/http"
)

func ringUsable() error { return errors.New("io_uring needs Linux") }

func serveUring() (http.Handler, func(int)) { return serveEpoll() }

func serveUringHandover() (http.Handler, func(int)) { return serveEpoll() }
