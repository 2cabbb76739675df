package durableobject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/testscale"
)

const (
	limitPath     = "/v2/limit"
	semaphorePath = "/v2/semaphore"
)

// Valid parts of calls, as JSON.
const (
	validBucket  = `["bucket","p","k","take",1,1,10,1,0,1,0]`
	validLease   = `["bucket","p","k","take",1,1,10,1,0,1,0,42,1000]`
	validSettle  = `["bucket","p","k","settle",1,1,10,1,42,-1,1]`
	validLog     = `["log","p","k","take",10,1000000,0,1,0]`
	validPenalty = `["cooldown","p","k","take",10,1000000,1000000,1,0]`
	validCounter = `["counter","p","k","take",10,1000,1,0]`
	validQuota   = `["quota","p","k","take",10,1,2,3,4,5,1,0]`
	validBlock   = `["quota","p","k","block",1000000]`
	validPermit  = `["k","h",1,1000,0]`
)

// An invalidBody is rejected before any of its calls is executed.
type invalidBody struct{ path, body, problem string }

// invalidPart is a body whose second call has a part that is a valid one with another element.
func invalidPart(valid string, element int, value, problem string) invalidBody {
	elements := strings.Split(strings.Trim(valid, "[]"), ",")
	elements[element] = value
	return invalidBody{limitPath, fmt.Sprintf(`{"v":2,"calls":[[%s],[[%s]]]}`, validBucket, strings.Join(elements, ",")), problem}
}

// invalidPermit is invalidPart for semaphores.
func invalidPermit(element int, value, problem string) invalidBody {
	elements := strings.Split(strings.Trim(validPermit, "[]"), ",")
	elements[element] = value
	return invalidBody{semaphorePath, fmt.Sprintf(`{"v":2,"calls":[%s,[%s]]}`, validPermit, strings.Join(elements, ",")), problem}
}

// The first call of most is valid.
var invalidBodies = []invalidBody{
	{limitPath, ``, "JSON"},
	{limitPath, `{"v":2`, "JSON"},
	{limitPath, strings.Repeat("[", 100_000), "JSON"},
	{limitPath, "{\"v\":2,\"calls\":[[[\"bucket\",\"p\",\"k\xff\",\"take\",1,1,10,1,0,1,0]]]}", "UTF-8"},
	{limitPath, `null`, "the body must be an object"},
	{limitPath, `[]`, "the body must be an object"},
	{limitPath, `{}`, "v must be 2"},
	{limitPath, `{"v":1,"calls":[[` + validBucket + `]]}`, "v must be 2"},
	{limitPath, `{"v":"2","calls":[[` + validBucket + `]]}`, "v must be 2"},
	{limitPath, `{"v":2}`, "calls must be"},
	{limitPath, `{"v":2,"calls":[]}`, "calls must be"},
	{limitPath, `{"v":2,"calls":{"0":[` + validBucket + `]}}`, "calls must be"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `],null]}`, "calls must be"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `],[]]}`, "calls[1] must have a part"},
	{limitPath, `{"v":2,"calls":[` + strings.Repeat(`[`+validBucket+`],`, 64) + `[` + validBucket + `]]}`, "1 to 64"},
	{limitPath, `{"v":2,"calls":[` + strings.Repeat(`[`+validBucket+`],`, 62) + `[` + validBucket + `,` + validLog + `,` + validQuota + `]]}`, "at most 64 parts"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `,` + validLog + `,` + validBucket + `]]}`, "calls[0] must have parts with different names or keys"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `,` + validBlock + `]]}`, "calls[0] must have one part, or parts that take or look"},
	{limitPath, `{"v":2,"calls":[[` + strings.Replace(validLog, "take", "refund", 1) + `,` + validBucket + `]]}`, "calls[0] must have one part"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `],[null]]}`, "calls[1][0] must be an array"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `],[{"length":11}]]}`, "calls[1][0] must be an array"},
	{limitPath, `{"v":2,"calls":[[` + validBucket + `],[["bucket","p","k"]]]}`, "calls[1][0] must be an array"},
	invalidPart(validBucket, 0, `"toString"`, "calls[1][0][0] must be one of bucket, log, cooldown, counter, quota"),
	invalidPart(validBucket, 0, `["bucket"]`, "calls[1][0][0]"),
	invalidPart(validBucket, 0, `null`, "calls[1][0][0]"),
	invalidPart(validBucket, 1, `""`, "calls[1][0][1]"),
	invalidPart(validBucket, 1, `"`+strings.Repeat("a", 257)+`"`, "calls[1][0][1]"),
	invalidPart(validBucket, 2, `1`, "calls[1][0][2]"),
	invalidPart(validBucket, 2, `"jörg"`, "calls[1][0][2]"),
	invalidPart(validBucket, 2, `"a\nb"`, "calls[1][0][2]"),
	invalidPart(validBucket, 2, `"a\n"`, "calls[1][0][2]"),
	invalidPart(validBucket, 2, `"`+strings.Repeat("a", 1025)+`"`, "calls[1][0][2]"),
	invalidPart(validBucket, 3, `"undo"`, "calls[1][0][3]"),
	invalidPart(validBucket, 3, `1`, "calls[1][0][3]"),
	invalidPart(validBucket, 4, `0`, "calls[1][0][4]"),
	invalidPart(validBucket, 4, `9001`, "calls[1][0][4]"),
	invalidPart(validBucket, 4, `1.5`, "calls[1][0][4]"),
	invalidPart(validBucket, 4, `"1"`, "calls[1][0][4]"),
	invalidPart(validBucket, 5, `0`, "calls[1][0][5]"),
	invalidPart(validBucket, 6, `-10`, "calls[1][0][6]"),
	invalidPart(validBucket, 6, `2251799813685248`, "2^51"),
	invalidPart(strings.Replace(validBucket, "1,1,10", "1,2251799813685248,10", 1), 6, `2251799813685248`, "2^51"),
	invalidPart(validBucket, 7, `0.5`, "calls[1][0][7]"),
	invalidPart(validBucket, 7, `null`, "calls[1][0][7]"),
	invalidPart(validBucket, 7, `true`, "calls[1][0][7]"),
	invalidPart(validBucket, 7, `[1]`, "calls[1][0][7]"),
	invalidPart(validBucket, 7, `4503599627370497`, "calls[1][0][7]"),
	invalidPart(validBucket, 7, `-4503599627370497`, "calls[1][0][7]"),
	invalidPart(validBucket, 7, `1e400`, "calls[1][0][7]"),
	invalidPart(validBucket, 8, `2251799813685249`, "calls[1][0][8]"),
	invalidPart(validBucket, 8, `-4503599627370497`, "calls[1][0][8]"),
	invalidPart(validBucket, 9, `0`, "calls[1][0][9]"),
	invalidPart(validBucket, 9, `-1`, "calls[1][0][9]"),
	invalidPart(validBucket, 9, `"1"`, "calls[1][0][9]"),
	invalidPart(validBucket, 10, `-1`, "calls[1][0][10]"),
	invalidPart(validBucket, 10, `0.5`, "calls[1][0][10]"),
	invalidPart(validBucket, 10, `1,1`, "calls[1][0] must have 9 numbers"),
	invalidPart(validLease, 11, `-1`, "calls[1][0][11]"),
	invalidPart(validLease, 11, `9007199254740992`, "calls[1][0][11]"),
	invalidPart(validLease, 12, `0`, "calls[1][0][12]"),
	invalidPart(validLease, 12, `86400000001`, "calls[1][0][12]"),
	invalidPart(validLease, 12, `1,1`, "calls[1][0] must have 9 numbers"),
	invalidPart(validSettle, 8, `0`, "calls[1][0][8]"),
	invalidPart(validSettle, 9, `-4503599627370497`, "calls[1][0][9]"),
	invalidPart(validSettle, 10, `true`, "calls[1][0][10]"),
	invalidPart(validSettle, 10, `1,1`, "calls[1][0] must have 7 numbers"),
	invalidPart(validLog, 3, `"grant"`, "calls[1][0][3]"),
	invalidPart(validLog, 4, `1001`, "calls[1][0][4]"),
	invalidPart(validLog, 5, `0`, "calls[1][0][5]"),
	invalidPart(validLog, 5, `315360000000001`, "calls[1][0][5]"),
	invalidPart(validLog, 6, `1`, "calls[1][0][6]"),
	invalidPart(validLog, 7, `-1`, "calls[1][0][7]"),
	invalidPart(validLog, 7, `4503599627370497`, "calls[1][0][7]"),
	invalidPart(validLog, 8, `3600000001`, "calls[1][0][8]"),
	invalidPart(validLog, 8, `-1`, "calls[1][0][8]"),
	invalidPart(strings.Replace(validLog, "take", "undo", 1), 8, `9007199254740993`, "calls[1][0][8]"),
	invalidPart(validLog, 8, `0,0`, "calls[1][0] must have 5 numbers"),
	invalidPart(validPenalty, 6, `0`, "calls[1][0][6]"),
	invalidPart(validPenalty, 6, `315360000000001`, "calls[1][0][6]"),
	invalidPart(validCounter, 3, `"toString"`, "calls[1][0][3]"),
	invalidPart(validCounter, 4, `2251799813686`, "calls[1][0][4]"),
	invalidPart(validCounter, 5, `0`, "calls[1][0][5]"),
	invalidPart(validCounter, 6, `null`, "calls[1][0][6]"),
	invalidPart(validCounter, 7, `0,0`, "calls[1][0] must have 4 numbers"),
	invalidPart(validQuota, 3, `null`, "calls[1][0][3]"),
	invalidPart(validQuota, 4, `2251799813685249`, "calls[1][0][4]"),
	invalidPart(validQuota, 5, `"1"`, "calls[1][0][5]"),
	invalidPart(validQuota, 6, `1`, "calls[1][0][6]"),
	invalidPart(validQuota, 7, `3456000000003`, "calls[1][0][7]"),
	invalidPart(validQuota, 8, `3`, "calls[1][0][8]"),
	invalidPart(validQuota, 9, `4`, "calls[1][0][9]"),
	invalidPart(validQuota, 10, `-1`, "calls[1][0][10]"),
	invalidPart(validQuota, 11, `0,0`, "calls[1][0] must have 10 numbers"),
	invalidPart(strings.Replace(validQuota, "take", "undo", 1), 11, `0,42,1000`, "calls[1][0] must have 8 numbers"),
	invalidPart(validQuota, 11, `0,0,1000`, "calls[1][0][12]"),
	invalidPart(validQuota, 11, `0,42,86400000001`, "calls[1][0][13]"),
	invalidPart(strings.Replace(validQuota, "take", "settle", 1), 11, `0,-1,1`, "calls[1][0][11]"),
	invalidPart(strings.Replace(validQuota, "take", "settle", 1), 11, `42,0.5,1`, "calls[1][0][12]"),
	invalidPart(strings.Replace(validQuota, "take", "settle", 1), 11, `42,-1,2`, "calls[1][0][13]"),
	invalidPart(validBlock, 4, `-1`, "calls[1][0][4]"),
	invalidPart(validBlock, 4, `31536000000001`, "calls[1][0][4]"),
	invalidPart(validBlock, 4, `0.1`, "calls[1][0][4]"),
	invalidPart(validBlock, 4, `1,1`, "calls[1][0] must have 1 number"),
	{semaphorePath, `{"v":2,"calls":[["k","h",1,1000]]}`, "calls[0] must have 5"},
	invalidPermit(1, `""`, "calls[1][1]"),
	invalidPermit(2, `0`, "calls[1][2]"),
	invalidPermit(3, `0`, "calls[1][3]"),
	invalidPermit(3, `3600001`, "calls[1][3]"),
	invalidPermit(4, `3`, "calls[1][4]"),
}

func TestWorker_RejectsInvalidBodyBeforeAnyCharge(t *testing.T) {
	w := startWorker(t, 1)
	w.stats(0)
	for _, c := range invalidBodies {
		status, reply, err := w.try(c.path, 0, []byte(c.body))
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, status, c.body)
		assert.Contains(t, reply.Error, c.problem, c.body)
	}
	s := w.stats(0)
	assert.Zero(t, s.Records+s.Leases)
	assert.Nil(t, s.Alarm)
}

func TestWorker_AcceptsBounds(t *testing.T) {
	w := startWorker(t, 1)
	key := strings.Repeat("~", 1024)
	for _, c := range []struct {
		path, body string
		want       response
	}{
		{
			limitPath, fmt.Sprintf(`{"v":2,"calls":[[["bucket","p",%q,"take",9000,1,2251799813676248,4503599627370496,-2251799813685248,1,0]],[["bucket","p",%[1]q,"look",9000,1,2251799813676248,0,0,1,0]]]}`, key),
			response{Replies: [][][]int64{{{2251799813676248, noon, 0, 0}}, {{-2251799813685248, noon, 0, 0}}}},
		},
		{
			limitPath, fmt.Sprintf(`{"v":2,"calls":[[["bucket","p",%q,"take",9000,1,2251799813676248,-4503599627370496,2251799813685248,4503599627370496,0]],[["bucket","p",%[1]q,"take",9000,1,2251799813676248,0,0,1,9007199254740991]]]}`, key),
			response{Replies: [][][]int64{{{-2251799813685248, noon, 0, 0}}, {{2251799813676248, noon, 0, 0}}}},
		},
		{limitPath, fmt.Sprintf(`{"v":2,"calls":[[["counter","p",%q,"block",31536000000000]]]}`, key), response{Replies: [][][]int64{{{1}}}}},
		{
			limitPath, `{"v":2,"calls":[[["log","p","","take",1000,315360000000000,0,1000,3600000000]],[["cooldown","p","","upto",1000,315360000000000,315360000000000,4503599627370496,-9007199254740991]]]}`,
			response{Replies: [][][]int64{{{0, 1000, 0, 315360000000000, 0, 0, 1000, noon}}, {{0, 1000, 0, 315360000000000, 0, 0, 1000, noon}}}},
		},
		{
			limitPath, `{"v":2,"calls":[[["counter","p","","take",2251799813685248,1,2251799813685248,0]],[["counter","q","","take",7140,315360000000,7140,0]]]}`,
			response{Replies: [][][]int64{{{0, 2251799813685248, 0, 2000, 0, 0, 2251799813685248, noon / 1000}}, {{0, 7140, 0, 477520000000000, 0, 0, 7140, 1576800000000}}}},
		},
		{
			limitPath, `{"v":2,"calls":[[["quota","p","","take",2251799813685248,1729000000000000,1729999999999999,1730000000000001,1733456000000001,1736912000000001,2251799813685248,0]]]}`,
			response{Replies: [][][]int64{{{0, 2251799813685248, 0, 1, 1, 1, 2251799813685248, noon - 1}}}},
		},
		{semaphorePath, fmt.Sprintf(`{"v":2,"calls":[[%q,"h",9007199254740991,3600000,0]]}`, key), response{Permits: []*[2]int64{{1, 1}}}},
	} {
		status, reply, err := w.try(c.path, noon, []byte(c.body))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, reply.Error)
		c.want.V, c.want.Tick = 2, 1
		assert.Equal(t, c.want, reply)
	}
}

func TestWorker_RejectsOtherRequests(t *testing.T) {
	w := startWorker(t, 1)
	valid, err := json.Marshal(limitBody(perSecond, take("k", 1)))
	require.NoError(t, err)
	large := append(bytes.Repeat([]byte(" "), 256<<10), valid...)
	for _, c := range []struct {
		method, path string
		body         []byte
		status       int
	}{
		{http.MethodPost, limitPath, large[len(valid):], http.StatusOK},
		{http.MethodPost, limitPath, large, http.StatusRequestEntityTooLarge},
		{http.MethodPost, "/", valid, http.StatusNotFound},
		{http.MethodPost, "/v2/limit/", valid, http.StatusNotFound},
		{http.MethodPost, "/toString", valid, http.StatusNotFound},
		{http.MethodPost, "/v1/limit", valid, http.StatusNotFound},
		{http.MethodGet, limitPath, nil, http.StatusMethodNotAllowed},
		{http.MethodPut, limitPath, valid, http.StatusMethodNotAllowed},
		{http.MethodPost, limitPath, nil, http.StatusBadRequest},
	} {
		request, err := http.NewRequest(c.method, w.URL+c.path, bytes.NewReader(c.body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "bearer "+w.Secret) // the scheme is case-insensitive
		status, _, err := w.send(request)
		require.NoError(t, err)
		assert.Equal(t, c.status, status, "%s %s with %d bytes", c.method, c.path, len(c.body))
	}
}

func TestWorker_RequiresSecret(t *testing.T) {
	s := startServer(t)
	w := newWorker(t, s)
	authorize := func(headers ...string) int {
		request, err := http.NewRequest(http.MethodPost, w.URL+limitPath, strings.NewReader(`{"v":2,"calls":[[`+validBucket+`]]}`))
		require.NoError(t, err)
		request.Header["Authorization"] = headers
		status, _, err := w.send(request)
		require.NoError(t, err)
		return status
	}
	variables := func(secret, next string) {
		s.Restart(func(o *workerdtest.Options) {
			o.Variables = map[string]string{"SECRET": secret, "SECRET_NEXT": next}
		})
	}
	rejected := func(secrets ...string) {
		for _, secret := range secrets {
			assert.Equal(t, http.StatusUnauthorized, authorize("Bearer "+secret), "%q", secret)
		}
	}
	accepted := func(secrets ...string) {
		for _, secret := range secrets {
			assert.Equal(t, http.StatusOK, authorize("Bearer "+secret), "%q", secret)
		}
	}
	accepted(s.Secret)
	assert.Equal(t, http.StatusUnauthorized, authorize())
	assert.Equal(t, http.StatusUnauthorized, authorize(""))
	assert.Equal(t, http.StatusUnauthorized, authorize("Bearer"))
	assert.Equal(t, http.StatusUnauthorized, authorize(s.Secret))
	assert.Equal(t, http.StatusUnauthorized, authorize("Bearer"+s.Secret))
	assert.Equal(t, http.StatusUnauthorized, authorize("Basic "+s.Secret))
	assert.Equal(t, http.StatusUnauthorized, authorize("Bearer x", "Bearer "+s.Secret))
	rejected("", " ", "undefined", "null", s.Secret[1:], s.Secret+"x", strings.ToLower(s.Secret))

	variables("old", "new") // rotation
	accepted("old", "new")
	rejected("", "ol", "news", "oldnew")
	variables("new", "")
	accepted("new")
	rejected("", "old")
	variables("", "")
	rejected("", " ", "new", "undefined")
	variables(" ", "\n")
	rejected("", " ", "new")
	variables("a new one\n", "") // as a shell writes it
	accepted("a new one")
	rejected("a", "a new", "a new one x")
	s.Restart(func(o *workerdtest.Options) { o.Variables = nil })
	rejected("", "new", "undefined")
}

func TestWorker_ProductionIgnoresTestClock(t *testing.T) {
	testscale.FullOnly(t, "TestLimiter_RequestIsThatOfTheProtocol")
	assert.NotContains(t, strings.ToLower(workerdtest.Production(t)), strings.ToLower(workerdtest.ClockHeader))
	w := newWorker(t, startServer(t))
	slow := perSecond
	slow.Refill, slow.Per = 1, 24*3600e9
	for _, now := range []int64{0, noon, 1 << 52} {
		reply := w.do(limitPath, now, limitBody(slow, take("k", 0)))
		assert.Equal(t, int64(1000), reply.Tick)
	}
	held := w.limit(0, slow, take("k", slow.Units().Full()))[0]
	assert.Equal(t, slow.Units().Full(), held)
	held = w.limit(1<<52, slow, take("k", 0))[0]
	assert.Less(t, held, slow.Units().PerToken())
	for _, path := range []string{"/test/stats", "/test/sweep", "/test/abort"} {
		status, _, err := w.try(path, 0, []byte("{}"))
		require.NoError(t, err)
		assert.Equal(t, http.StatusNotFound, status)
	}
}

// FuzzWorker_Body sends any bytes. The Worker must reject them without writing, or answer each call.
func FuzzWorker_Body(f *testing.F) {
	w := startWorker(f, 1)
	paths := []string{limitPath, semaphorePath}
	valid := []string{
		`{"v":2,"calls":[[` + strings.Join([]string{validBucket, validLog, validPenalty, validCounter, validQuota, strings.Replace(validLease, `"k"`, `"l"`, 1)}, ",") + `],[` + validBlock + `],[` + validSettle + `]]}`,
		`{"v":2,"calls":[["k","h",1,1000,0],["k","h",1,1000,1],["k","h",1,1000,2]]}`,
	}
	for i, body := range valid {
		f.Add(i, []byte(body))
	}
	for _, c := range invalidBodies {
		for i, path := range paths {
			if path == c.path && len(c.body) < 10_000 {
				f.Add(i, []byte(c.body))
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		f.Add(i, mutate(r, valid[i%2]))
	}
	f.Fuzz(func(t *testing.T, path int, body []byte) {
		w := w.with(t)
		before := w.stats(0)
		status, reply, err := w.try(paths[(path%2+2)%2], 0, body)
		require.NoError(t, err)
		if status == http.StatusOK {
			var sent map[string]any
			require.NoError(t, json.Unmarshal(body, &sent))
			assert.Len(t, sent["calls"], len(reply.Replies)+len(reply.Permits))
			return
		}
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, status, "%s", body)
		assert.Equal(t, before.Written, w.stats(0).Written, "%s", body)
	})
}

// mutate replaces a few bytes or words of a body.
func mutate(r *rand.Rand, body string) []byte {
	b := []byte(body)
	for range 1 + r.IntN(3) {
		tokens := []string{"null", "-", "1e9", "\"", "[", "]", "9007199254740993", "{}", ",", "\\u0000", "0.5", "\xff"}
		i := r.IntN(len(b))
		switch r.IntN(3) {
		case 0:
			b[i] = byte(r.IntN(256))
		case 1:
			b = append(b[:i:i], append([]byte(tokens[r.IntN(len(tokens))]), b[i:]...)...)
		default:
			b = append(b[:i:i], append([]byte(tokens[r.IntN(len(tokens))]), b[i+1:]...)...)
		}
	}
	return b
}
