// Command node is a node of the test of two versions in one cluster. It is built from the sources
// of both:
//
//	node ADDRESS-OF-REDIS
//
// It prints the address at which it listens. It ends with its standard input, or is shut down when
// that has a line.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/versions"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: node ADDRESS-OF-REDIS")
	}
	if err := run(goredis.NewClient(&goredis.Options{Addr: os.Args[1]})); err != nil {
		log.Fatal(err)
	}
}

func run(client *goredis.Client) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r := newRouter(client)
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	fmt.Println(listener.Addr())
	if bufio.NewScanner(os.Stdin).Scan() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return r.Shutdown(ctx)
	}
	return nil
}

func newRouter(client *goredis.Client) *router.Router {
	r := router.New(&router.Options{
		Broker: redis.NewBroker(client),
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: req.URL.Path[1:]}, nil
		},
		Resume: router.ResumeOptions{Within: 2 * time.Minute},
	})
	authorize := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(r, "live/{id}", &router.TopicOptions{Authorize: authorize, Presence: true})
	router.Topic(r, "kept/{id}", &router.TopicOptions{Authorize: authorize, History: router.History{Messages: 1000}})
	router.RPC(r, func(ctx *router.Context, m versions.Enter) (versions.Result, error) {
		return versions.Result{}, ctx.Conn().Subscribe(m.Topic)
	})
	router.RPC(r, func(ctx *router.Context, m versions.Publish) (versions.Result, error) {
		return versions.Result{}, ctx.Publish(m.Topic, versions.Note(m))
	})
	router.RPC(r, func(_ *router.Context, m versions.Members) (versions.Result, error) {
		var users []string
		for _, member := range r.Presence(m.Topic) {
			users = append(users, member.UserID)
		}
		slices.Sort(users)
		return versions.Result{Texts: users}, nil
	})
	router.RPC(r, func(ctx *router.Context, m versions.AskUser) (versions.Result, error) {
		var got versions.Result
		for each := range router.CallUser[versions.Answer](ctx, r, "", m.User, versions.Question(m)) {
			if each.Err != nil {
				return versions.Result{}, each.Err
			}
			got.Texts = append(got.Texts, each.Reply.Texts...)
		}
		return got, nil
	})
	limiter := redis.NewLimiter(client, limit.PerHour(1).Burst(100).Named("versions"))
	router.RPC(r, func(ctx *router.Context, m versions.Spend) (versions.Result, error) {
		var got versions.Result
		for range m.Count {
			decision, err := limit.Consume(ctx, limiter, limit.Key{m.Text}, 1)
			if err != nil {
				return versions.Result{}, err
			}
			if decision.Allowed {
				got.Number++
			}
		}
		return got, nil
	})
	return r
}
