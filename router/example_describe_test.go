package router_test

import (
	"fmt"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type FindBook struct {
	Title string `json:"title"`
}

type Book struct {
	Title string `json:"title"`
	Pages int    `json:"pages"`
}

type BookAdded struct {
	Title string `json:"title"`
}

func (FindBook) MessageType() string  { return "FIND_BOOK" }
func (Book) MessageType() string      { return "BOOK" }
func (BookAdded) MessageType() string { return "BOOK_ADDED" }

// Package contract turns a description into TypeScript, AsyncAPI and JSON Schema.
func ExampleRouter_Describe() {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m FindBook) (Book, error) {
		return Book{}, errors.Errorf(errors.NotFound, "there is no book %q", m.Title)
	}).Doc(router.RouteDoc{Errors: []errors.Code{errors.NotFound}})
	router.Topic(r, "shelf/{name}", &router.TopicOptions{Messages: []router.Message{BookAdded{}}})

	d := r.Describe()
	for _, route := range d.Routes {
		fmt.Println(route.Kind, route.Type, route.Go, "→", route.Reply.Go, route.Errors[0].Code)
	}
	for _, topic := range d.Topics {
		fmt.Println("topic", topic.Pattern, topic.Messages)
	}
	// Output:
	// call FIND_BOOK router_test.FindBook → router_test.Book NOT_FOUND
	// topic shelf/{name} [BOOK_ADDED]
}
