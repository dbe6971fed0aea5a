package page

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

const (
	fleetToken = "correct horse battery"
	selfID     = "11111111-1111-1111-1111-111111111111"
	otherID    = "22222222-2222-2222-2222-222222222222"
)

// member is the registry of a page that knows of some others.
type member struct {
	neighbours
	self proxies.Proxy
}

func (m *member) Self() proxies.Proxy { return m.self }

// memberPage is a page that has a token, "" is none, and is served; what Redis tells of it is in its registry.
func memberPage(t testing.TB, e *engine, id, token string) (*Page, *member) {
	t.Helper()
	m := &member{self: proxies.Proxy{ID: id, Record: proxies.Record{Host: "h", Addr: "10.0.0.1:6380"}, Until: time.Now().Add(time.Hour)}}
	o := e.options()
	o.Proxies, o.About.Proxy = m, id
	if token != "" {
		o.Entry.Token = func() string { return token }
	}
	p, at := served(t, o)
	m.self.Page = strings.TrimPrefix(at, "http://")
	return p, m
}

// A signature is for what it says, for one proxy at one address, for a while, and once.
func TestSignatures(t *testing.T) {
	_, m := memberPage(t, &engine{list: []lock.Entry{held("mine", "10.1.1.1:1")}}, selfID, fleetToken)
	now := time.Now()
	call := func(method, path, authorization string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.self.Page+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", authorization)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		return w.StatusCode, w.Header.Get(answerHeader)
	}
	good := func(at time.Time) (stamp, signature string) {
		stamp = newStamp(at)
		return stamp, target(fleetToken, selfID, m.self.Page, "GET", othersPath, stamp)
	}
	stamp, signature := good(now)
	if code, answer := call("GET", othersPath, scheme+stamp+" "+signature); code != 200 || answer == "" {
		t.Fatalf("%d, %q", code, answer)
	}
	old, oldSignature := good(now.Add(-signedFor - 5*time.Second))
	early, earlySignature := good(now.Add(signedFor + 5*time.Second))
	other := newStamp(now)
	for name, c := range map[string][3]string{
		"replayed":                 {"GET", othersPath, stamp + " " + signature},
		"old":                      {"GET", othersPath, old + " " + oldSignature},
		"of the future":            {"GET", othersPath, early + " " + earlySignature},
		"forged":                   {"GET", othersPath, other + " " + strings.Repeat("0", 64)},
		"with another time":        {"GET", othersPath, strconv.FormatInt(now.UnixMilli()+1, 10) + stamp[13:] + " " + signature},
		"by another token":         {"GET", othersPath, other + " " + target(fleetToken+"x", selfID, m.self.Page, "GET", othersPath, other)},
		"for another proxy":        {"GET", othersPath, other + " " + target(fleetToken, otherID, m.self.Page, "GET", othersPath, other)},
		"for another address":      {"GET", othersPath, other + " " + target(fleetToken, selfID, "6.6.6.6:1", "GET", othersPath, other)},
		"for another question":     {"GET", othersPath, other + " " + target(fleetToken, selfID, m.self.Page, "GET", "/proxies.json", other)},
		"for the page":             {"GET", "/", other + " " + target(fleetToken, selfID, m.self.Page, "GET", "/", other)},
		"for a force":              {"POST", "/lock?db=0&name=mine", other + " " + target(fleetToken, selfID, m.self.Page, "POST", "/lock?db=0&name=mine", other)},
		"for a POST of JSON":       {"POST", othersPath, other + " " + target(fleetToken, selfID, m.self.Page, "POST", othersPath, other)},
		"that is none":             {"GET", othersPath, ""},
		"the token as a signature": {"GET", othersPath, fleetToken},
	} {
		if code, answer := call(c[0], c[1], scheme+c[2]); code != 401 || answer != "" {
			t.Errorf("a signature %s: %d", name, code)
		}
	}
	var s signed
	for i := range mostSigned {
		if !s.take(strconv.Itoa(i), now) {
			t.Fatal(i)
		}
	}
	if s.take("more", now) || !s.take("later", now.Add(3*signedFor)) || len(s.last) != 1 {
		t.Errorf("%d signatures are kept", len(s.last))
	}
}

// What others hold and wait for is shown with ours, one lock as one row, and asked for only while somebody looks.
func TestOthersAreShown(t *testing.T) {
	odd := "odd\xff/..//\u202e<b>"
	e := &engine{list: []lock.Entry{held("shared", "10.1.1.1:1"), held(odd, "10.1.1.9:9")}}
	theirs, their := memberPage(t, e, otherID, fleetToken)
	p, m := memberPage(t, &engine{list: []lock.Entry{waits("shared", "10.2.2.2:2", 90*time.Second)}}, selfID, fleetToken)
	their.self.Addr = "10.0.0.2:6380"
	m.neighbours = neighbours{their.self}
	get := func(path string) string {
		t.Helper()
		w := ask(t, p, "GET", home+path, "", "Authorization", "Bearer "+fleetToken)
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	var told locksJSON
	if err := json.Unmarshal([]byte(get("/locks.json?sort=name")), &told); err != nil || len(told.Locks) != 2 || told.Of != 2 {
		t.Fatalf("%v, %+v", err, told)
	}
	if one := told.Locks[0]; one.String() != odd || one.Holders[0].Proxy != otherID {
		t.Errorf("%+v", one)
	}
	one := told.Locks[1]
	if one.Holding != 1 || one.Waiting != 1 || one.Holders[0].Proxy != otherID || one.Waiters[0].Proxy != selfID || one.Waiters[0].Waited < 90000 || one.Holders[0].Held < 90000 || one.Holders[0].Lease != 30000 {
		t.Errorf("%+v", one)
	}
	has(t, get("/"), "2 locks, held or waited for through this proxy and 1 other", "10.0.0.2:6380", "http://"+their.self.Page+"/", `odd\xff/..//\u202e&lt;b&gt;`)
	has(t, get("/proxies"), "10.0.0.2:6380", "this one")
	if err := json.Unmarshal([]byte(get("/locks.json?here=1")), &told); err != nil || len(told.Locks) != 1 {
		t.Errorf("here alone: %v, %+v", err, told)
	}
	theirs.Close()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(get("/"), "A proxy does</a> not tell"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not said that one is silent")
		}
	}
}

// What several proxies know of one hold is shown once, by the one that is sure of it for longest.
func TestOneHoldOfSeveralProxies(t *testing.T) {
	of := func(owner, proxy string, left time.Duration) (e lock.Entry) {
		e.Key, e.Owner, e.Proxy, e.Left = "k", owner, proxy, left
		return e
	}
	rows, _ := group([]lock.Entry{of("job", "", 1), of("job", "a", 3), of("job", "b", 2), of("other", "b", 2), of("gone", "", 0), of("gone", "a", 0)})
	var got []string
	for _, e := range rows[0].held {
		got = append(got, e.Owner+" "+e.Proxy)
	}
	if want := []string{"gone ", "job a", "other b"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A name in an address is any bytes.
func TestLockAsJSON(t *testing.T) {
	for path, want := range map[string]string{"/locks/a.json": "a", "/locks/.json?db=3": "", "/locks/a%2F%2Fb.json": "a//b", "/locks/%2E%2E%2Fx.json": "../x", "/locks/%FF%00.json": "\xff\x00", "/locks/x.json.json": "x.json"} {
		var told lockJSON
		w := ask(t, New((&engine{}).options()), "GET", home+path, "")
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || told.String() != want {
			t.Errorf("%s: %d, %q, %v", path, w.Code, told.String(), err)
		}
	}
	for _, path := range []string{"/locks/a", "/locks/a.json?db=x", "/locks/a.json?db=-1", "/locks.json?limit=x", "/locks/" + strings.Repeat("x", 5000) + ".json"} {
		if w := ask(t, New((&engine{}).options()), "GET", home+path, ""); w.Code != 400 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// Who pretends to be a proxy gets no token, is not believed, holds nobody up, and has no link.
func TestOthersThatAreNone(t *testing.T) {
	_, m := memberPage(t, &engine{list: []lock.Entry{held("theirs", "10.1.1.1:1")}}, otherID, fleetToken)
	var asked atomic.Int64
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.Contains(fmt.Sprint(r.Header, r.URL), fleetToken) {
			t.Error("the token was sent")
		}
		switch asked.Load() % 5 {
		case 0:
			fmt.Fprintf(w, `{"proxy":%q,"of":1,"locks":[{"name":"evil","holders":[{"owner":"x"}]}]}`, otherID)
		case 1:
			http.Redirect(w, r, "http://"+m.self.Page+othersPath, http.StatusFound)
		case 2:
			fmt.Fprint(w, strings.Repeat("x", mostAnswer+10))
		case 3:
			r2, err := http.NewRequestWithContext(r.Context(), "GET", "http://"+m.self.Page+othersPath, nil) // what was signed for it, to the honest one
			if err != nil {
				t.Error(err)
				return
			}
			r2.Header = r.Header
			w2, err := http.DefaultClient.Do(r2)
			if err != nil {
				t.Error(err)
				return
			}
			if w2.Body.Close(); w2.StatusCode != 401 {
				t.Errorf("a signature that was relayed is good for %d", w2.StatusCode)
			}
			w.WriteHeader(w2.StatusCode)
		case 4:
			<-r.Context().Done()
		}
	}))
	defer evil.Close()
	p, mine := memberPage(t, &engine{}, selfID, fleetToken)
	mine.neighbours = neighbours{{ID: otherID, Record: proxies.Record{Host: "h", Addr: "evil<b>", Page: strings.TrimPrefix(evil.URL, "http://")}, Until: time.Now().Add(time.Hour)}}
	for end := time.Now().Add(30 * time.Second); asked.Load() < 6; time.Sleep(20 * time.Millisecond) {
		text := ask(t, p, "GET", home+"/", "", "Authorization", "Bearer "+fleetToken).Body.String()
		if strings.Contains(text, `href="http`) || strings.Contains(text, "name=evil") {
			t.Fatal(text)
		}
		if time.Now().After(end) {
			t.Fatalf("it was asked %d times", asked.Load())
		}
	}
	for page, host := range map[string]string{"": "h", "x": "h", ":1": "h", "127.0.0.1:1": "other", "a@127.0.0.1:1": "h", "127.0.0.1/x?:1": "h", "127.0.0.1:1/x": "h", "[::1": "h"} {
		whom := proxies.Proxy{ID: otherID, Record: proxies.Record{Page: page, Host: host}}
		if why := p.unaskable(whom); why == "" {
			if _, err := p.get(t.Context(), whom); err == nil || !strings.Contains(err.Error(), "address") {
				t.Errorf("%q is asked: %v", page, err)
			}
		}
	}
	open := New((&engine{}).options())
	if open.unaskable(proxies.Proxy{Record: proxies.Record{Page: "10.0.0.9:80"}}) == "" {
		t.Error("a page that asks for nothing believes an address that others reach")
	}
}

// A certificate is believed only if the authorities that this page trusts have signed it, and a page
// that is elsewhere all at once has no link before it answers there.
func TestOthersByCertificate(t *testing.T) {
	t.Parallel()
	evil := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"proxy":%q,"of":0,"locks":[]}`, otherID)
	}))
	defer evil.Close()
	whom := proxies.Proxy{ID: otherID, Until: time.Now().Add(time.Hour),
		Record: proxies.Record{Page: strings.TrimPrefix(evil.URL, "https://"), Secure: true}}
	for name, trusts := range map[string]bool{"its authority is trusted": true, "another one is": false} {
		o := (&engine{}).options()
		pool := x509.NewCertPool()
		if trusts {
			pool.AddCert(evil.Certificate())
		}
		o.Entry.Certificates, o.Entry.Authorities = true, func() *x509.CertPool { return pool }
		p := New(o)
		_, err := p.get(t.Context(), whom)
		p.others.end()
		if (err == nil) != trusts {
			t.Errorf("%s: %v", name, err)
		}
	}
	var o others
	o.begin(Entry{})
	o.know([]proxies.Proxy{whom}, time.Now())
	o.by[otherID].become("up", "", time.Now())
	o.know([]proxies.Proxy{whom}, time.Now())
	if now := o.by[otherID]; now.State.State != "up" {
		t.Errorf("%+v", now.State)
	}
	whom.Page = "6.6.6.6:80"
	o.know([]proxies.Proxy{whom}, time.Now())
	if now := o.by[otherID]; now.State.State != "down" || now.Trouble == "" {
		t.Errorf("%+v", now.State)
	}
}
