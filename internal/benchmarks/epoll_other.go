//go:build !linux

package main

import (
	"errors"
	"net/http"
)

func serveEpoll() (http.Handler, func(int)) {
	fatal(errors.New("epoll needs Linux"))
	return nil, nil
}
