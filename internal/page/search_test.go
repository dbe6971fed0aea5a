package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

const thread = "0f8fad5b-d9cb-469f-a165-70867728950e:52"

// inRedis has the page find these locks, some with each step, and returns the steps that were made.
func inRedis(o *Options, steps ...[]lock.Found) *[]string {
	asked := &[]string{}
	o.Search = func(_ context.Context, db int, match, cursor string) (string, []lock.Found, error) {
		*asked = append(*asked, fmt.Sprintf("%d %s %s", db, match, cursor))
		at, err := strconv.Atoi(cursor)
		if err != nil {
			return "", nil, errors.New("ERR invalid <cursor>")
		}
		return strconv.Itoa((at + 1) % len(steps)), steps[at], nil
	}
	return asked
}

func lockOf(key, owner string) lock.Found {
	f := lock.Found{Key: key}
	f.Kind, f.TTL, f.Holders = "plain", 12000, []lock.Holder{{Owned: lockstore.Owned{Owner: owner, Holds: 2}}}
	return f
}

// A pattern finds locks in Redis, each with where its holder is; nothing in a name is markup.
func TestSearchShowsLocks(t *testing.T) {
	t.Parallel()
	e := &engine{others: []proxies.State{{Proxy: proxies.Proxy{ID: "7c9e6679-7425-40de-944b-e07fc1f90ae7", Host: "pod-9"}, State: "gone"}}}
	o := e.options()
	asked := inRedis(&o, []lock.Found{lockOf("orders:1", thread), lockOf("<script>\x00\xff", "7c9e6679-7425-40de-944b-e07fc1f90ae7:1")}, nil,
		[]lock.Found{lockOf("orders:2", "job<7>"), lockOf("orders:3", "11111111-7425-40de-944b-e07fc1f90ae7:1")})
	p := New(o)
	text := ask(t, p, "GET", home+"/redis?db=3&name=o*", "").Body.String()
	has(t, text, "orders:1", "orders:2", "/lock?db=3&amp;name=orders%3A2", thread, "Redisson: getId() and thread", "through the proxy at pod-9 7c9e6679, which has gone",
		"job&lt;7&gt;", "a named owner", "through another proxy, or Redisson", "2 times", "12 s", `value="o*"`, `value="3"`, "&lt;script&gt;", "name=%3Cscript%3E%00%FF")
	if strings.Contains(text, "<script>") || strings.Contains(text, `id="more"`) {
		t.Error(text)
	}
	if want := []string{"3 o* 0", "3 o* 1", "3 o* 2"}; fmt.Sprint(*asked) != fmt.Sprint(want) {
		t.Errorf("%v", *asked)
	}
	has(t, ask(t, p, "GET", home+"/redis?db=0&name=&cursor=1", "").Body.String(), "orders:2")
	if last := (*asked)[len(*asked)-2]; last != "0 * 1" {
		t.Errorf("without a pattern it asked for %q", last)
	}
	has(t, ask(t, p, "GET", home+"/", "").Body.String(), `action="/redis"`, "Locks in Redis, also of Redisson")
}

// A page is made of so many steps, and of so many locks; a link goes on.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	o := (&engine{}).options()
	asked := inRedis(&o, make([][]lock.Found, 1000)...)
	text := ask(t, New(o), "GET", home+"/redis?db=0&name=a%26b*", "").Body.String()
	has(t, text, "No lock was found", "Not all keys were looked at", fmt.Sprintf("cursor=%d&amp;db=0&amp;name=a%%26b%%2A", mostSteps))
	if len(*asked) != mostSteps {
		t.Errorf("%d steps", len(*asked))
	}
	many := make([]lock.Found, enoughFound)
	for i := range many {
		many[i] = lockOf(fmt.Sprint(i), thread)
		many[i].Unread = 30
	}
	asked = inRedis(&o, many, many, many)
	has(t, ask(t, New(o), "GET", home+"/redis?db=0&name=*", "").Body.String(), "cursor=1", "and 30 more")
	if len(*asked) != 1 {
		t.Errorf("%d steps", len(*asked))
	}
}

// A name leads to its lock without a scan; what is no search is refused; what Redis says is shown.
func TestSearchOfAName(t *testing.T) {
	t.Parallel()
	o := (&engine{}).options()
	asked := inRedis(&o, nil)
	p := New(o)
	w := ask(t, p, "GET", home+"/redis?db=2&name="+url.QueryEscape("a b&c"), "")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/lock?db=2&name=a+b%26c" || len(*asked) != 0 {
		t.Errorf("%d %q %v", w.Code, w.Header().Get("Location"), *asked)
	}
	for _, query := range []string{"name=*", "db=-1&name=*", "db=x&name=*", "db=0&name=" + strings.Repeat("*", lockstore.MaxName+1)} {
		if w := ask(t, p, "GET", home+"/redis?"+query, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	has(t, ask(t, p, "GET", home+"/redis?db=0&name=*&cursor=x", "").Body.String(), `role="alert">ERR invalid &lt;cursor&gt;`)
}

// The search is behind the page's guard: without the token, from another site, or by another name of this machine nobody makes Redis search.
func TestSearchIsGuarded(t *testing.T) {
	t.Parallel()
	o := (&engine{}).options()
	asked := inRedis(&o, nil)
	if w := ask(t, New(o), "GET", home+"/redis?db=0&name=*", "", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("from another site: %d", w.Code)
	}
	if w := ask(t, New(o), "GET", "http://evil.example/redis?db=0&name=*", ""); w.Code != http.StatusForbidden {
		t.Errorf("by another name: %d", w.Code)
	}
	o.Credentials.Token = func() string { return "a long token" }
	if w := ask(t, New(o), "GET", home+"/redis?db=0&name=*", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("without the token: %d", w.Code)
	}
	if w := ask(t, New(o), "POST", home+"/redis?db=0&name=*", "x=1", "Authorization", "Bearer a long token"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if len(*asked) != 0 {
		t.Errorf("Redis was asked: %v", *asked)
	}
	if w := ask(t, New(o), "GET", home+"/redis?db=0&name=*", "", "Authorization", "Bearer a long token"); w.Code != http.StatusOK || len(*asked) != 1 {
		t.Errorf("with the token: %d", w.Code)
	}
}
