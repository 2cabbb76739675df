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
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// A request names what a call of the test is about, and a reply has the result.
type (
	request struct {
		Topic string `json:"topic"`
		Text  string `json:"text"`
		User  string `json:"user"`
		Count int64  `json:"count"`
	}
	reply struct {
		Texts  []string `json:"texts"`
		Number int64    `json:"number"`
	}

	enter    struct{ request } // subscribes the connection to a topic
	publish  struct{ request } // publishes a note
	members  struct{ request } // returns the users that are present in a topic
	askUser  struct{ request } // calls the clients of a user
	spend    struct{ request } // takes tokens, one by one, and returns how many it got
	note     struct{ request } // is a publication
	question struct{ request } // is a call to a client, which answers with an answer
	result   struct{ reply }
	answer   struct{ reply }
)

func (enter) MessageType() string    { return "ENTER" }
func (publish) MessageType() string  { return "PUBLISH" }
func (members) MessageType() string  { return "MEMBERS" }
func (askUser) MessageType() string  { return "ASK_USER" }
func (spend) MessageType() string    { return "SPEND" }
func (note) MessageType() string     { return "NOTE" }
func (question) MessageType() string { return "QUESTION" }
func (result) MessageType() string   { return "RESULT" }
func (answer) MessageType() string   { return "ANSWER" }

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
	router.RPC(r, func(ctx *router.Context, m enter) (result, error) {
		return result{}, ctx.Conn().Subscribe(m.Topic)
	})
	router.RPC(r, func(ctx *router.Context, m publish) (result, error) {
		return result{}, ctx.Publish(m.Topic, note(m))
	})
	router.RPC(r, func(_ *router.Context, m members) (result, error) {
		var users []string
		for _, member := range r.Presence(m.Topic) {
			users = append(users, member.UserID)
		}
		slices.Sort(users)
		return result{reply{Texts: users}}, nil
	})
	router.RPC(r, func(ctx *router.Context, m askUser) (result, error) {
		var got result
		for each := range router.CallUser[answer](ctx, r, "", m.User, question(m)) {
			if each.Err != nil {
				return result{}, each.Err
			}
			got.Texts = append(got.Texts, each.Reply.Texts...)
		}
		return got, nil
	})
	limiter := redis.NewLimiter(client, limit.PerHour(1).Burst(100).Named("versions"))
	router.RPC(r, func(ctx *router.Context, m spend) (result, error) {
		var got result
		for range m.Count {
			decision, err := limit.Consume(ctx, limiter, limit.Key{m.Text}, 1)
			if err != nil {
				return result{}, err
			}
			if decision.Allowed {
				got.Number++
			}
		}
		return got, nil
	})
	return r
}
