package deflate

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The grammar of RFC 6455, section 9.1, with optional whitespace where RFC 2616 implies it, as
// regular expressions: slow and independent of the parser.
const (
	tokenRE  = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	valueRE  = tokenRE + `|"(?:\\?` + "[!#$%&'*+.^_`|~0-9A-Za-z-]" + `)+"`
	paramRE  = `[ \t]*;[ \t]*(` + tokenRE + `)[ \t]*(?:=[ \t]*(` + valueRE + `))?`
	offerRE  = `(` + tokenRE + `)((?:` + paramRE + `)*)`
	headerRE = `^[ \t]*(?:(?:` + offerRE + `)?[ \t]*,[ \t]*)*(?:` + offerRE + `)?[ \t]*$`
)

var (
	headerModel = regexp.MustCompile(headerRE)
	offerModel  = regexp.MustCompile(offerRE)
	paramModel  = regexp.MustCompile(paramRE)
)

// modelAnswers returns the valid answers (RFC 7692, section 7.1) to the first offer in the
// header that a server which uses the full window can meet, in all orders of parameters. If keeps, the
// server keeps windows where the client permits them, and limits that of the client to 2 KiB. The
// answer is nil if there is no such offer.
func modelAnswers(header string, keeps bool) []string {
	if !headerModel.MatchString(header) {
		return nil
	}
	for _, offer := range offerModel.FindAllStringSubmatch(header, -1) {
		if !strings.EqualFold(offer[1], "permessage-deflate") {
			continue
		}
		params := map[string]string{}
		meets := true
		for _, p := range paramModel.FindAllStringSubmatch(offer[2], -1) {
			name, value := strings.ToLower(p[1]), strings.NewReplacer(`"`, "", `\`, "").Replace(p[2])
			_, twice := params[name]
			params[name] = value
			switch name {
			case "server_no_context_takeover", "client_no_context_takeover":
				meets = meets && !twice && p[2] == ""
			case "server_max_window_bits":
				meets = meets && !twice && value == "15"
			case "client_max_window_bits":
				meets = meets && !twice && (p[2] == "" || slices.Contains([]string{"8", "9", "10", "11", "12", "13", "14", "15"}, value))
			default:
				meets = false
			}
		}
		if !meets {
			continue
		}
		// Sections 7.1.1.1 and 7.1.1.2: a server may always answer with both; section 7.1.2.1:
		// it must answer with a window size that the client asks for. Section 7.1.2.2: it may only
		// limit the window of a client that offers it, to the size that the client offers at most.
		var answer []string
		if _, without := params["server_no_context_takeover"]; without || !keeps {
			answer = append(answer, "server_no_context_takeover")
		}
		bits, limits := params["client_max_window_bits"]
		switch _, without := params["client_no_context_takeover"]; {
		case without || !keeps || !limits || bits == "8":
			answer = append(answer, "client_no_context_takeover")
		case bits == "9" || bits == "10":
			answer = append(answer, "client_max_window_bits="+bits)
		default:
			answer = append(answer, "client_max_window_bits=11")
		}
		if _, asked := params["server_max_window_bits"]; asked {
			answer = append(answer, "server_max_window_bits=15")
		}
		return answer
	}
	return nil
}

// FuzzDeflateOffer compares the answer to arbitrary offers with a model of RFC 7692.
func FuzzDeflateOffer(f *testing.F) {
	for _, seed := range []string{
		"permessage-deflate", "permessage-deflate; client_max_window_bits",
		"Permessage-Deflate ;client_max_window_bits=10; server_no_context_takeover",
		`permessage-deflate; server_max_window_bits="15"`, `permessage-deflate; server_max_window_bits="1\5"`,
		"permessage-deflate; server_max_window_bits=10, permessage-deflate",
		"permessage-deflate; client_no_context_takeover; client_no_context_takeover, permessage-deflate",
		`x; a="b, permessage-deflate"`, `x; a="b\"c", permessage-deflate`, `x; a="`, `x; a="\`, ",, ,permessage-deflate ,",
		"permessage-deflate;", "permessage-deflate; =", "permessage-deflate; client_max_window_bits=", "permessage-deflate x",
		"permessage-deflate; client_max_window_bits=08", "permessage-deflate; made_up", "", ",", "\x00", "permessage-deflate; \xff",
	} {
		f.Add(seed, "")
		f.Add("x-webkit-deflate-frame", seed)
	}
	sizes := []string{"", "=7", "=8", "=9", "=10", "=11", "=12", "=13", "=14", "=15", "=16", "=015", "=x", "=-8"}
	for _, takeover := range []string{"", "; server_no_context_takeover", "; client_no_context_takeover", "; client_no_context_takeover=1"} {
		for _, server := range sizes {
			for _, client := range sizes {
				f.Add("permessage-deflate"+takeover+"; server_max_window_bits"+server+"; client_max_window_bits"+client, "permessage-deflate")
				f.Add("permessage-deflate"+takeover+"; client_max_window_bits"+client, "")
			}
		}
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		offer, ok := ParseOffer(http.Header{"Sec-Websocket-Extensions": {first, second}})
		if wellFormed := headerModel.MatchString(first + "," + second); ok != wellFormed {
			t.Errorf("well-formed %v, want %v", ok, wellFormed)
		}
		for _, keeps := range []bool{false, true} {
			want := modelAnswers(first+","+second, keeps)
			if offer == nil {
				if want != nil {
					t.Errorf("offers %q and %q are declined, want %q", first, second, want)
				}
				continue
			}
			var w *Windows
			if keeps && offer.PermitsWindows() {
				w = offer.NewWindows()
			}
			answer := offer.Answer(w)
			parts := strings.Split(answer, "; ")
			got := slices.Sorted(slices.Values(parts[1:]))
			slices.Sort(want)
			if parts[0] != "permessage-deflate" || !slices.Equal(got, want) {
				t.Errorf("the answer to offers %q and %q is %q, want %q", first, second, answer, want)
			}
		}
	})
}
