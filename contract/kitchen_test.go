package contract_test

import (
	"encoding/json"
	"iter"
	"math/big"
	"net/netip"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/internal/shop"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// The messages of a router with everything that a contract can have.

// Color is an enumeration that clients send.
type Color string

func (Color) Enum() []Color       { return []Color{"red", "green"} }
func (Color) Description() string { return "A color of the rainbow." }

// Level is an enumeration that clients only receive, of numbers.
type Level int

func (Level) Enum() []Level { return []Level{1, 2, 3} }

// State is an enumeration that clients only receive.
type State string

func (State) Enum() []string { return []string{"open", "closed"} }

// Cents encodes itself and has a schema.
type Cents int64

func (c Cents) MarshalJSON() ([]byte, error) { return json.Marshal(int64(c)) }
func (c *Cents) UnmarshalJSON(text []byte) error {
	var n int64
	err := json.Unmarshal(text, &n)
	*c = Cents(n)
	return err
}

func (Cents) JSONSchema() string {
	return `{"type":"integer","description":"An amount of money in cents."}`
}

// Code is a text.
type Code struct{ a, b byte }

func (c Code) MarshalText() ([]byte, error) { return []byte{'a' + c.a%26, 'a' + c.b%26}, nil }
func (c *Code) UnmarshalText(text []byte) error {
	if len(text) != 2 {
		return errors.New("a code has two letters")
	}
	c.a, c.b = text[0]-'a', text[1]-'a'
	return nil
}

// Audit is embedded.
type Audit struct {
	By   string `json:"by" description:"Who has changed it."`
	Note string `json:"note,omitempty"`
}

func (Audit) Description() string { return "Who has changed something." }

// Origin is embedded as a pointer.
type Origin struct {
	Country string `json:"country"`
}

type hidden struct {
	Visible bool `json:"visible"`
}

// Page is generic.
type Page[T any] struct {
	Items []T  `json:"items"`
	More  bool `json:"more"`
}

// Tree contains itself.
type Tree struct {
	Name     string          `json:"name"`
	Children []Tree          `json:"children"`
	Parent   *Tree           `json:"parent,omitzero"`
	ByName   map[string]Tree `json:"byName,omitempty"`
}

// Nested contains itself without fields.
type (
	Nested []Nested
	Dict   map[string]Dict
)

// Item has the same name as shop.Item.
type Item struct {
	Label string `json:"label"`
}

// Everything has a field of every kind.
type Everything struct {
	Audit
	*Origin
	hidden

	Bool         bool             `json:"bool"`
	Text         string           `json:"text" description:"Any text. */ It ends no comment."`
	Int          int              `json:"int"`
	Int8         int8             `json:"int8"`
	Int16        int16            `json:"int16"`
	Int32        int32            `json:"int32"`
	Int64        int64            `json:"int64,string"`
	Safe         int64            `json:"safe" contract:"safe"`
	SafeList     []uint64         `json:"safeList" contract:"safe"`
	Uint         uint             `json:"uint"`
	Uint8        uint8            `json:"uint8"`
	Uint16       uint16           `json:"uint16"`
	Uint32       uint32           `json:"uint32"`
	Uint64       uint64           `json:"uint64,string"`
	Float32      float32          `json:"float32"`
	Float64      float64          `json:"float64"`
	FloatText    float64          `json:"floatText,string"`
	Bytes        []byte           `json:"bytes"`
	Hash         [3]byte          `json:"hash"`
	Pair         [2]int           `json:"pair"`
	Strings      []string         `json:"strings"`
	Matrix       [][]float64      `json:"matrix"`
	Map          map[string]int   `json:"map"`
	ByInt        map[int16]string `json:"byInt"`
	ByUint       map[uint8]string `json:"byUint"`
	ByCode       map[Code]bool    `json:"byCode"`
	ByColor      map[Color]bool   `json:"byColor"`
	Time         time.Time        `json:"time"`
	TimeZero     time.Time        `json:"timeZero,omitzero"`
	TimeEmpty    time.Time        `json:"timeEmpty,omitempty"` //nolint:modernize // encoding/json/v2 defines it
	Pointer      *string          `json:"pointer"`
	PointerZero  *string          `json:"pointerZero,omitzero"`
	PointerTwice **int            `json:"pointerTwice"`
	PointerItem  *Item            `json:"pointerItem"`
	PointerList  *[]string        `json:"pointerList"`
	PointerText  *int64           `json:"pointerText,string"`
	IntEmpty     int              `json:"intEmpty,omitempty"`
	IntZero      int              `json:"intZero,omitzero"`
	TextEmpty    string           `json:"textEmpty,omitempty"`
	ListZero     []int            `json:"listZero,omitzero"`
	StructEmpty  Audit            `json:"structEmpty,omitempty"` //nolint:modernize // encoding/json/v2 defines it
	StructNone   struct {
		A []int "json:\"a,omitempty\""
	} `json:"structNone,omitempty"` //nolint:modernize // encoding/json/v2 defines it
	Color        Color                 `json:"color"`
	ColorPointer *Color                `json:"colorPointer"`
	Colors       []Color               `json:"colors"`
	Price        Cents                 `json:"price"`
	PricePointer *Cents                `json:"pricePointer"`
	Big          big.Int               `json:"big"`
	Code         Code                  `json:"code"`
	IP           netip.Addr            `json:"ip"`
	Any          any                   `json:"any"`
	Raw          json.RawMessage       `json:"raw"`
	Item         Item                  `json:"item"`
	ShopItem     shop.Item             `json:"shopItem"`
	Page         Page[Item]            `json:"page"`
	Pages        Page[Page[shop.Item]] `json:"pages"`
	Texts        Page[[]string]        `json:"texts"`
	Tree         Tree                  `json:"tree"`
	Nested       Nested                `json:"nested"`
	Dict         Dict                  `json:"dict"`
	Anonymous    struct{ X, Y int }    `json:"anonymous"`
	Quoted       string                `json:"a-b c"`
	Untagged     string
	Ignored      chan int `json:"-"`
}

func (Everything) MessageType() string { return "EVERYTHING" }

// Shape is an interface with variants.
type Shape interface{ Area() float64 }

type Circle struct {
	Kind   string  `json:"kind" contract:"const=circle"`
	Radius float64 `json:"radius"`
}

type Square struct {
	Kind string  `json:"kind" contract:"const=square"`
	Side float64 `json:"side"`
}

func (c Circle) Area() float64 { return 3 * c.Radius * c.Radius }
func (s Square) Area() float64 { return s.Side * s.Side }

// Extended has members that the type does not name.
type Extended struct {
	Name string         `json:"name"`
	Rest map[string]int `json:",embed"`
}

// Received is what only the server sends.
type Received struct {
	Level    Level    `json:"level"`
	State    State    `json:"state"`
	Shape    Shape    `json:"shape"`
	Extended Extended `json:"extended"`
	Color    Color    `json:"color"`
}

func (Received) MessageType() string { return "RECEIVED" }

type (
	Ping      struct{}
	Pong      struct{}
	Ask       struct{ Question string }
	Answer    struct{ Text string }
	Progress  struct{ Percent int }
	Export    struct{ Table string }
	Row       struct{ Cells []string }
	Exported  struct{ Rows int }
	Tail      struct{ File string }
	Confirm   struct{ Text string }
	Confirmed struct{ Yes bool }
	Quiet     struct{ Why string }
	Odd       struct{ X int }
	TooHard   struct {
		Level  int     `json:"level"`
		Origin *Origin `json:"origin"`
	}
)

func (Ping) MessageType() string      { return "PING" }
func (Pong) MessageType() string      { return "PONG" }
func (Ask) MessageType() string       { return "ASK" }
func (Answer) MessageType() string    { return "ANSWER" }
func (Export) MessageType() string    { return "EXPORT" }
func (Exported) MessageType() string  { return "EXPORTED" }
func (Tail) MessageType() string      { return "TAIL" }
func (Confirm) MessageType() string   { return "CONFIRM" }
func (Confirmed) MessageType() string { return "CONFIRMED" }
func (Quiet) MessageType() string     { return "QUIET" }
func (Odd) MessageType() string       { return "odd name/\"with\" `signs`" }

func kitchenOptions() *contract.Options {
	return &contract.Options{
		Title: "Kitchen sink", Version: "1.2.3", Description: "Everything that a contract can have.", URL: "wss://example.com/ws",
		Schemas:  map[reflect.Type]string{reflect.TypeFor[big.Int](): `{"type":"integer"}`},
		Variants: map[reflect.Type][]reflect.Type{reflect.TypeFor[Shape](): {reflect.TypeFor[Circle](), reflect.TypeFor[Square]()}},
	}
}

func kitchenRouter() *router.Router {
	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20).Named("messages"))
	opts := &ratelimit.Options{Key: ratelimit.KeyPerUser}
	r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}, AnnounceLimits: ratelimit.Announce(limiter, opts)})
	router.On(r, func(*router.Context, Everything) error { return nil }).Doc(router.RouteDoc{Description: "Has a field of every kind."}).MaxMessageBytes(50_000)
	router.On(r, func(*router.Context, Ping) error { return nil })
	router.On(r, func(*router.Context, Odd) error { return nil })
	router.RPC(r, func(*router.Context, Ask) (Answer, error) { return Answer{}, nil }).
		Doc(router.RouteDoc{
			Description: "Answers a question.\nIt takes a while.", Progress: Progress{},
			Errors: []errors.Code{errors.NotFound}, ErrorDetails: map[errors.Code]any{"TOO_HARD": TooHard{}},
		})
	router.RPC(r, func(*router.Context, Quiet) (Pong, error) { return Pong{}, nil })
	router.Stream(r, func(*router.Context, Export) iter.Seq2[Row, error] { return nil }).
		Doc(router.RouteDoc{Reply: Exported{}, Errors: []errors.Code{"EMPTY"}})
	router.Stream(r, func(*router.Context, Tail) iter.Seq2[string, error] { return nil })
	router.DeclareMessage[Received](r)
	router.DeclareMessage[Pong](r)
	router.DeclareCall[Confirm, Confirmed](r)
	router.Topic(r, "room/{id}", &router.TopicOptions{Messages: []router.Message{Received{}, Everything{}}, History: router.History{Messages: 10, Age: time.Minute}, Presence: true})
	router.Topic(r, "room/lobby", &router.TopicOptions{Messages: []router.Message{Pong{}}})
	router.Topic(r, "files/{path...}", nil)
	router.Topic(r, "odd`$name", &router.TopicOptions{Messages: []router.Message{Pong{}}})
	return r
}
