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

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/internal/workerdtest"
)

const (
	limitPath     = "/v1/limit"
	blockPath     = "/v1/block"
	semaphorePath = "/v1/semaphore"
)

// invalidBodies are rejected before any of their calls is executed. The first call of most is valid.
var invalidBodies = []struct{ path, body, problem string }{
	{limitPath, ``, "JSON"},
	{limitPath, `{"v":1`, "JSON"},
	{limitPath, "{\"v\":1,\"policy\":[1,1,10],\"calls\":[[\"k\xff\",1,0,1]]}", "UTF-8"},
	{limitPath, `null`, "the body must be an object"},
	{limitPath, `[]`, "the body must be an object"},
	{limitPath, `{}`, "v must be 1"},
	{limitPath, `{"v":2,"policy":[1,1,10],"calls":[["k",1,0,1]]}`, "v must be 1"},
	{limitPath, `{"v":"1","policy":[1,1,10],"calls":[["k",1,0,1]]}`, "v must be 1"},
	{limitPath, `{"v":1,"policy":[1,1,10]}`, "calls must be"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[]}`, "calls must be"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":{"0":["k",1,0,1]}}`, "calls must be"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],null]}`, "calls must be"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[` + strings.Repeat(`["k",1,0,1],`, 64) + `["k",1,0,1]]}`, "1 to 64"},
	{limitPath, `{"v":1,"calls":[["k",1,0,1]]}`, "policy must be"},
	{limitPath, `{"v":1,"policy":[1,1],"calls":[["k",1,0,1]]}`, "policy must be"},
	{limitPath, `{"v":1,"policy":{"length":3},"calls":[["k",1,0,1]]}`, "policy must be"},
	{limitPath, `{"v":1,"policy":[0,1,10],"calls":[["k",1,0,1]]}`, "policy[0]"},
	{limitPath, `{"v":1,"policy":[9001,1,10],"calls":[["k",1,0,1]]}`, "policy[0]"},
	{limitPath, `{"v":1,"policy":[1.5,1,10],"calls":[["k",1,0,1]]}`, "policy[0]"},
	{limitPath, `{"v":1,"policy":["1",1,10],"calls":[["k",1,0,1]]}`, "policy[0]"},
	{limitPath, `{"v":1,"policy":[1,0,10],"calls":[["k",1,0,1]]}`, "policy[1]"},
	{limitPath, `{"v":1,"policy":[1,1,-10],"calls":[["k",1,0,1]]}`, "policy[2]"},
	{limitPath, `{"v":1,"policy":[1,1,2251799813685248],"calls":[["k",1,0,1]]}`, "2^51"},
	{limitPath, `{"v":1,"policy":[1,2251799813685248,2251799813685248],"calls":[["k",1,0,1]]}`, "2^51"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,0]]}`, "calls[1] must have 4"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,0,1,1,1]]}`, "calls[1] must have 4"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",-1,0,1,-1]]}`, "calls[1][4]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",-1,0,1,0.5]]}`, "calls[1][4]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["",1,0,1]]}`, "calls[1][0]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],[1,1,0,1]]}`, "calls[1][0]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["jörg",1,0,1]]}`, "calls[1][0]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["a\nb",1,0,1]]}`, "calls[1][0]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["a\n",1,0,1]]}`, "calls[1][0]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["` + strings.Repeat("a", 1025) + `",1,0,1]]}`, "calls[1][0]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",0.5,0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",null,0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",true,0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",[1],0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",4503599627370497,0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",-4503599627370497,0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1e400,0,1]]}`, "calls[1][1]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,2251799813685249,1]]}`, "calls[1][2]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,-2251799813685249,1]]}`, "calls[1][2]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,0,0]]}`, "calls[1][3]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,0,-1]]}`, "calls[1][3]"},
	{limitPath, `{"v":1,"policy":[1,1,10],"calls":[["k",1,0,1],["k",1,0,"1"]]}`, "calls[1][3]"},
	{limitPath, strings.Repeat("[", 100_000), "JSON"},
	{blockPath, `{"v":1,"calls":[["k",1000000],["k"]]}`, "calls[1] must have 2"},
	{blockPath, `{"v":1,"calls":[["k",1000000],["k",-1]]}`, "calls[1][1]"},
	{blockPath, `{"v":1,"calls":[["k",1000000],["k",31536000000001]]}`, "calls[1][1]"},
	{blockPath, `{"v":1,"calls":[["k",1000000],["k",0.1]]}`, "calls[1][1]"},
	{semaphorePath, `{"v":1,"calls":[["k","h",1,1000,0],["k","h",1,1000]]}`, "calls[1] must have 5"},
	{semaphorePath, `{"v":1,"calls":[["k","h",1,1000,0],["k","",1,1000,0]]}`, "calls[1][1]"},
	{semaphorePath, `{"v":1,"calls":[["k","h",1,1000,0],["k","h",0,1000,0]]}`, "calls[1][2]"},
	{semaphorePath, `{"v":1,"calls":[["k","h",1,1000,0],["k","h",1,0,0]]}`, "calls[1][3]"},
	{semaphorePath, `{"v":1,"calls":[["k","h",1,1000,0],["k","h",1,3600001,0]]}`, "calls[1][3]"},
	{semaphorePath, `{"v":1,"calls":[["k","h",1,1000,0],["k","h",1,1000,3]]}`, "calls[1][4]"},
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
	assert.Zero(t, s.Buckets+s.Leases)
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
			limitPath, fmt.Sprintf(`{"v":1,"policy":[9000,1,2251799813676248],"calls":[[%q,4503599627370496,-2251799813685248,1],[%[1]q,0,0,1]]}`, key),
			response{Held: []*int64{new(int64(2251799813676248)), new(int64(-2251799813685248))}},
		},
		{
			limitPath, fmt.Sprintf(`{"v":1,"policy":[9000,1,2251799813676248],"calls":[[%q,-4503599627370496,2251799813685248,4503599627370496],[%[1]q,0,0,1]]}`, key),
			response{Held: []*int64{new(int64(-2251799813685248)), new(int64(2251799813676248))}},
		},
		{blockPath, fmt.Sprintf(`{"v":1,"calls":[[%q,31536000000000]]}`, key), response{Done: []bool{true}}},
		{semaphorePath, fmt.Sprintf(`{"v":1,"calls":[[%q,"h",9007199254740991,3600000,0]]}`, key), response{Permits: []*[2]int64{{1, 1}}}},
	} {
		status, reply, err := w.try(c.path, noon, []byte(c.body))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, reply.Error)
		c.want.V, c.want.Tick = 1, 1
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
		{http.MethodPost, "/v1/limit/", valid, http.StatusNotFound},
		{http.MethodPost, "/toString", valid, http.StatusNotFound},
		{http.MethodPost, "/v2/limit", valid, http.StatusNotFound},
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
		request, err := http.NewRequest(http.MethodPost, w.URL+limitPath, strings.NewReader(`{"v":1,"policy":[1,1,1],"calls":[["k",0,0,1]]}`))
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
	paths := []string{limitPath, blockPath, semaphorePath}
	valid := []string{
		`{"v":1,"policy":[1,100000,10],"calls":[["k",100000,0,100000],["l",-5,-7,1]]}`,
		`{"v":1,"calls":[["k",1000000],["l",0]]}`,
		`{"v":1,"calls":[["k","h",1,1000,0],["k","h",1,1000,1],["k","h",1,1000,2]]}`,
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
		f.Add(i, mutate(r, valid[i%3]))
	}
	f.Fuzz(func(t *testing.T, path int, body []byte) {
		w := w.with(t)
		before := w.stats(0)
		status, reply, err := w.try(paths[(path%3+3)%3], 0, body)
		require.NoError(t, err)
		if status == http.StatusOK {
			var sent map[string]any
			require.NoError(t, json.Unmarshal(body, &sent))
			assert.Len(t, sent["calls"], len(reply.Held)+len(reply.Done)+len(reply.Permits))
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
