package proxies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	self     = "11111111-1111-1111-1111-111111111111"
	other    = "22222222-2222-2222-2222-222222222222"
	stranger = "33333333-3333-3333-3333-333333333333"
)

// told is the reply of the script: ids, and for how many ms.
func told(all ...any) []byte {
	out := resp.AppendArray(nil, 1+len(all)/2*3)
	out = append(out, ":1\r\n"...)
	for i := 0; i < len(all); i += 2 {
		out = resp.AppendBulk(out, []byte(all[i].(string)))
		out = append(out, fmt.Sprintf(":%d\r\n", all[i+1])...)
		out = resp.AppendBulk(out, []byte(`{"host":"h","addr":"10.0.0.2:6380","version":"v"}`))
	}
	return out
}

// registry is one whose log is the buffer.
func registry(log *strings.Builder) *Registry {
	return New(Options{ID: self, Say: func(string) Record { return Record{Host: "h"} }, Log: slog.New(slog.NewTextHandler(log, nil))})
}

// A proxy is there as long as Redis says, and afterwards known as gone; whose connection an owner is follows from that.
func TestProxiesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registry(new(strings.Builder))
		reply := told(self, 10000, other, 9000)
		ask := func(context.Context, [][]byte, int) ([]byte, error) { return reply, nil }
		of := func(owner string) string {
			p, known, none := r.Of(owner)
			return fmt.Sprint(p.Addr, " ", known, " ", none, " ", p.Gone)
		}
		if got := of(stranger + ":1"); got != " false false false" {
			t.Error("before anything is known:", got)
		}
		r.round(t.Context(), ask)
		for owner, want := range map[string]string{other + ":1": "10.0.0.2:6380 true false false", stranger + ":1": " false true false", self + ":1": " false false false",
			"worker:7": " false false false", other + ":x": " false false false"} {
			if got := of(owner); got != want {
				t.Errorf("%s: %s", owner, got)
			}
		}
		reply = told(self, 10000)
		time.Sleep(8 * time.Second)
		r.round(t.Context(), ask)
		if got := of(other + ":1"); got != "10.0.0.2:6380 true false false" {
			t.Error("it has not said that it goes, but FLUSHALL may have been:", got)
		}
		time.Sleep(2 * time.Second)
		r.round(t.Context(), ask)
		if got := of(other + ":1"); got != "10.0.0.2:6380 true false true" {
			t.Error("after its time:", got)
		}
		if all, err := r.All(); len(all) != 1 || err != nil || all[0].ID != other {
			t.Errorf("%v, %v", all, err)
		}
		time.Sleep(goneFor)
		r.round(t.Context(), ask)
		if all, _ := r.All(); len(all) != 0 {
			t.Errorf("%v", all)
		}
	})
}

// What is no answer changes nothing that is known, the log has a refusal once, and what no proxy says is passed over.
func TestProxiesInTrouble(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	r := registry(&log)
	at := told(other, 9000)
	for _, c := range []struct {
		reply string
		err   error
	}{{"", errors.New("away")}, {"-NOPERM no\r\n", nil}, {"-NOPERM no\r\n", nil}, {"*0\r\n", nil}, {"$-1\r\n", nil}, {"+OK\r\n", nil}, {"*2\r\n:1\r\n:2\r\n", nil}, {"*1\r\n:0\r\n", nil}} {
		r.round(t.Context(), func(context.Context, [][]byte, int) ([]byte, error) { return at, nil })
		r.round(t.Context(), func(context.Context, [][]byte, int) ([]byte, error) { return []byte(c.reply), c.err })
		if all, err := r.All(); len(all) != 1 || err == nil {
			t.Errorf("%q: %v, %v", c.reply, all, err)
		}
		if _, known, none := r.Of(stranger + ":1"); known || none {
			t.Errorf("%q: a list that is not whole says that there is no proxy", c.reply)
		}
	}
	if n := strings.Count(log.String(), "NOPERM"); n != 1 || !strings.Contains(log.String(), "others have written it") || strings.Contains(log.String(), "away") {
		t.Error(log.String())
	}
	for _, bad := range []string{"x", strings.ToUpper("aaaaaaaa-1111-1111-1111-111111111111")} {
		r.round(t.Context(), func(context.Context, [][]byte, int) ([]byte, error) { return told(bad, 1000), nil })
	}
	large := strings.Replace(string(told(stranger, 1000)), `$49`, `$2049`, 1)
	large = strings.Replace(large, `{"host"`, strings.Repeat(" ", 2000)+`{"host"`, 1)
	r.round(t.Context(), func(context.Context, [][]byte, int) ([]byte, error) { return []byte(large), nil })
	if all, err := r.All(); len(all) != 1 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}

// Where others find who listens.
func TestReached(t *testing.T) {
	t.Parallel()
	for _, c := range [][4]string{
		{"127.0.0.1:6380", "10.0.0.1", "10.0.0.1:6380", "127.0.0.1:6380"}, {"localhost:6380", "10.0.0.1", "10.0.0.1:6380", "localhost:6380"}, {"[::]:1", "fe80::1", "[fe80::1]:1", "[fe80::1]:1"},
		{":6380", "", ":6380", ":6380"}, {"unix:///run/x", "10.0.0.1", "unix:///run/x", "unix:///run/x"}, {"10.1.1.1:1", "10.0.0.1", "10.1.1.1:1", "10.1.1.1:1"}, {"0.0.0.0:1", "10.0.0.1", "10.0.0.1:1", "10.0.0.1:1"},
		{"lock.internal:1", "10.0.0.1", "lock.internal:1", "lock.internal:1"},
	} {
		if clients, page := Reached(c[0], c[1], false), Reached(c[0], c[1], true); clients != c[2] || page != c[3] {
			t.Errorf("%q on %q: %q, %q", c[0], c[1], clients, page)
		}
	}
	if got := Toward(t.Context(), "127.0.0.1:1"); got != "127.0.0.1" {
		t.Errorf("%q", got)
	}
	if got := Toward(t.Context(), "/run/redis.sock"); got != "" {
		t.Errorf("%q", got)
	}
}
