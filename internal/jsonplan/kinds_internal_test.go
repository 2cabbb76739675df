package jsonplan

import (
	"encoding/json"
	"image"
	"net/netip"
	"time"
)

// Say is an ordinary message: three fields, 80 bytes.
type Say struct {
	Room string `json:"room"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

// Scalars has all kinds of values without elements.
type Scalars struct {
	Bool    bool
	String  string
	Int     int
	Int8    int8
	Int16   int16
	Int32   int32
	Int64   int64
	Uint    uint
	Uint8   uint8
	Uint16  uint16
	Uint32  uint32
	Uint64  uint64
	Uintptr uintptr
	Float32 float32
	Float64 float64
	Bytes   []byte
	Array   [3]byte
	Long    [200]byte
	Time    time.Time

	hidden int
	Skip   string `json:"-"`
}

type (
	// A Flag is a named boolean.
	Flag bool
	// A Room is a named string.
	Room string
	// A Count is a named integer.
	Count int16
	// A Size is a named unsigned integer.
	Size uint32
	// A Ratio is a named number.
	Ratio float32
	// A Blob is a named slice of bytes.
	Blob []byte
	// An Octet is a named byte: lists of it are not in base64.
	Octet byte
	// Names is a named slice.
	Names []string
	// Ages is a named map.
	Ages map[Room]int
	// Link is a named pointer.
	Link *Point
	// List contains itself.
	List []List
)

// Named has values of named types.
type Named struct {
	Flag    Flag         `json:"flag"`
	Room    Room         `json:"room"`
	Count   Count        `json:"count"`
	Size    Size         `json:"size"`
	Ratio   Ratio        `json:"ratio"`
	Blob    Blob         `json:"blob"`
	Octets  []Octet      `json:"octets"`
	Octets3 [3]Octet     `json:"octets3"`
	Names   Names        `json:"names"`
	Ages    Ages         `json:"ages"`
	Link    Link         `json:"link"`
	List    List         `json:"list"`
	Month   time.Month   `json:"month"`
	Months  []time.Month `json:"months"`
}

// A Point is a struct without a MessageType.
type Point struct {
	X, Y int
}

// Lists has slices, arrays and maps of several kinds.
type Lists struct {
	Strings  []string                     `json:"strings"`
	Ints     []int                        `json:"ints"`
	Matrix   [][]float64                  `json:"matrix"`
	Pair     [2]string                    `json:"pair"`
	Pairs    [2][2]int8                   `json:"pairs"`
	None     [0]string                    `json:"none"`
	Points   []Point                      `json:"points"`
	Pointers []*Point                     `json:"pointers"`
	Times    []time.Time                  `json:"times"`
	Blobs    [][]byte                     `json:"blobs"`
	Map      map[string]int               `json:"map"`
	Keys     map[Room]Point               `json:"keys"`
	Maps     map[string]map[string]string `json:"maps"`
	ByList   map[string][]*string         `json:"byList"`
	Arrays   map[string][2]bool           `json:"arrays"`
	Inner    []struct {
		A int    `json:"a"`
		B string `json:"b,omitempty"`
	} `json:"inner"`
}

// Pointers has pointers.
type Pointers struct {
	Bool   *bool
	String *string
	Int    **int
	Float  *float64
	Time   *time.Time
	Point  *Point
	List   *[]int
	Map    *map[string]string
	Bytes  *[]byte
	Value  *any
}

// Omitted has the options omitzero and omitempty.
type Omitted struct {
	String   string            `json:"string,omitempty"`
	Zero     string            `json:"zero,omitzero"`
	Flag     Flag              `json:"flag,omitzero"`
	Bool     bool              `json:"bool,omitempty"`
	Int      int               `json:"int,omitempty"`
	IntZero  Count             `json:"intZero,omitzero"`
	Float    float64           `json:"float,omitzero"`
	Slice    []int             `json:"slice,omitempty"`
	NilSlice []int             `json:"nilSlice,omitzero"`
	Map      map[string]int    `json:"map,omitempty"`
	NilMap   map[string]int    `json:"nilMap,omitzero"`
	Bytes    []byte            `json:"bytes,omitempty"`
	Array    [2]int            `json:"array,omitzero"`
	None     [0]int            `json:"none,omitempty"`
	Pointer  *int              `json:"pointer,omitempty"`
	Text     *string           `json:"text,omitempty"`
	Point    Point             `json:"point,omitzero"`
	Inner    OmittedInner      `json:"inner,omitempty"`
	InnerPtr *OmittedInner     `json:"innerPtr,omitempty"`
	Time     time.Time         `json:"time,omitzero"`
	TimePtr  *time.Time        `json:"timePtr,omitzero"`
	TimeFull time.Time         `json:"timeFull,omitempty"`
	Any      any               `json:"any,omitempty"`
	AnyZero  any               `json:"anyZero,omitzero"`
	Both     *string           `json:"both,omitzero,omitempty"`
	Zeroer   Zeroer            `json:"zeroer,omitzero"`
	ZeroerP  *Zeroer           `json:"zeroerP,omitzero"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	Maps     []map[string]bool `json:"maps,omitempty"`
}

// OmittedInner may be encoded as {}.
type OmittedInner struct {
	A string `json:"a,omitempty"`
	B int    `json:"b,omitzero"`
}

// A Zeroer is zero if it is 7.
type Zeroer int

// IsZero is called for the option omitzero.
func (z *Zeroer) IsZero() bool { return *z == 7 }

// FirstCertain begins with a member that is always present.
type FirstCertain struct {
	A int    `json:"a"`
	B string `json:"b,omitempty"`
	C int    `json:"c"`
}

// Quoted has the option string.
type Quoted struct {
	Int     int64     `json:"int,string"`
	Uint    uint8     `json:"uint,string"`
	Float   float64   `json:"float,string"`
	Count   Count     `json:"count,string,omitzero"`
	Pointer *int      `json:"pointer,string"`
	Deep    **float32 `json:"deep,string"`
}

// Base is embedded.
type Base struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

type hidden struct {
	Secret int  `json:"secret"`
	Same   int  `json:"same"`
	Room   Room // has a name in JSON that another one hides
}

// Deep is embedded by a pointer.
type Deep struct {
	Base2
	Depth int `json:"depth"`
	Same  int `json:"same"`
}

// Base2 is embedded two levels deep.
type Base2 struct {
	Two  int    `json:"two"`
	Kind string `json:"kind"`
}

// Embedded has embedded structs.
type Embedded struct {
	Base
	hidden
	*Deep
	Named  Base `json:"named"`
	Flat   Flat `json:",embed"`
	Room   string
	Author struct {
		Name string
		Tags []string `json:"tags,omitempty"`
	}
	After int `json:"after"`
}

// Flat is embedded by an option.
type Flat struct {
	Left, Right int
}

// Conflicts embeds itself and structs with members of the same name.
type Conflicts struct {
	*Conflicts
	ConflictsA
	ConflictsB
	Self int `json:"self"`
}

// ConflictsA has names of ConflictsB.
type ConflictsA struct {
	Both   int
	Tagged int
	One    string `json:"one"`
}

// ConflictsB has names of ConflictsA.
type ConflictsB struct {
	Both  int
	Other int `json:"Tagged"`
	Two   string
}

// Library has values that the library decodes and encodes.
type Library struct {
	Any       any                    `json:"any"`
	Values    []any                  `json:"values"`
	Object    map[string]any         `json:"object"`
	Raw       json.RawMessage        `json:"raw"`
	Addr      netip.Addr             `json:"addr"`
	Addrs     []netip.Addr           `json:"addrs"`
	ByAddr    map[netip.Addr]int     `json:"byAddr"`
	ByInt     map[int]string         `json:"byInt"`
	Text      Text                   `json:"text"`
	TextPtr   *Text                  `json:"textPtr"`
	JSON      JSON                   `json:"json"`
	Foreign   image.Rectangle        `json:"foreign"`
	Fallback  Fallback               `json:"fallback"`
	Fallbacks map[string][]*Fallback `json:"fallbacks"`
}

// Text has methods for its encoding as a string.
type Text struct{ a, b byte }

// MarshalText returns two letters.
func (t Text) MarshalText() ([]byte, error) { return []byte{'a' + t.a%26, 'a' + t.b%26}, nil }

// UnmarshalText parses two letters.
func (t *Text) UnmarshalText(text []byte) error {
	if len(text) != 2 || text[0] < 'a' || text[0] > 'z' || text[1] < 'a' || text[1] > 'z' {
		return json.Unmarshal([]byte("!"), t)
	}
	t.a, t.b = text[0]-'a', text[1]-'a'
	return nil
}

// JSON has methods for its encoding as any JSON; null is not its zero value.
type JSON struct{ text string }

// MarshalJSON returns what was decoded.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j.text == "" {
		return []byte(`"none"`), nil
	}
	return []byte(j.text), nil
}

// UnmarshalJSON accepts all JSON.
func (j *JSON) UnmarshalJSON(text []byte) error {
	j.text = string(text)
	return nil
}

// Fallback has an option that generated code leaves to the library, and so do all fields of its type.
type Fallback struct {
	Name string `json:"name,case:ignore"`
}

// Tree contains itself.
type Tree struct {
	Value    int              `json:"value"`
	Left     *Tree            `json:"left,omitempty"`
	Children []Tree           `json:"children,omitempty"`
	ByName   map[string]*Tree `json:"byName,omitempty"`
	Other    *Forest          `json:"other,omitzero"`
}

// Forest and Tree contain each other.
type Forest struct {
	Trees []*Tree `json:"trees"`
	Page  Page[Tree]
	Pages []Page[string]
}

// A Page is a struct with a type parameter.
type Page[T any] struct {
	Items []T  `json:"items"`
	More  bool `json:"more"`
}

// OddNames has names with characters that JSON or HTML treat specially.
type OddNames struct {
	HTML    int `json:"a<b>&c"`
	Umlaut  int `json:"größe"`
	Line    int `json:"a\u2028b"`
	Slash   int `json:"a/b"`
	Space   int `json:" "`
	Dash    int `json:"-x"`
	Upper   int `json:"ROOM"`
	Lower   int `json:"room"`
	Comment int `json:"x%s"`
}

// Many has more than 64 members.
type Many struct {
	F00, F01, F02, F03, F04, F05, F06, F07, F08, F09, F10, F11, F12, F13, F14, F15 int
	F16, F17, F18, F19, F20, F21, F22, F23, F24, F25, F26, F27, F28, F29, F30, F31 int
	F32, F33, F34, F35, F36, F37, F38, F39, F40, F41, F42, F43, F44, F45, F46, F47 int
	F48, F49, F50, F51, F52, F53, F54, F55, F56, F57, F58, F59, F60, F61, F62, F63 int
	F64, F65, F66                                                                  string
}

// Empty has no fields.
type Empty struct{}

// ByPointer is a message by its pointer.
type ByPointer struct {
	Name string `json:"name"`
}
