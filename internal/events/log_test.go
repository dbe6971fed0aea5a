package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func all(*Event) bool { return true }

func of(k Kind) func(*Event) bool { return func(e *Event) bool { return e.Kind == k } }

func grant(key string) Event {
	return Event{At: time.Now(), Kind: Grant, Verb: "LOCK", Lock: true, Key: key, Client: Client{Addr: "10.0.0.1:1"}}
}

// lines are what was written, each read as JSON.
func lines(t *testing.T, text string) (read []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		read = append(read, one)
	}
	return read
}

// However many grants and wrong passwords come, what was lost meanwhile is there afterwards, and how many were left out
// is told.
func TestFloodPushesOutNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(&out, "box")
		const floods = 5000
		for i := range floods {
			l.Add(grant(fmt.Sprint("orders:", i)))
			l.Add(Event{At: time.Now(), Kind: Login, Client: Client{Addr: fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)}})
			if i == floods/2 {
				l.Add(Event{At: time.Now(), Kind: Loss, Lock: true, Key: "lost", Reason: "unrenewed"})
			}
		}
		time.Sleep(2 * time.Second)
		l.Close()
		if got := l.Latest(10, "loss", all); len(got) != 1 || got[0].Key != "lost" {
			t.Error("losses:", got)
		}
		for _, k := range []Kind{Grant, Login} {
			got := l.Latest(math.MaxInt, "", of(k))
			if len(got) != mostInSecond+1 || got[0].More != floods-mostInSecond {
				t.Errorf("%s: %d are kept, first %+v", k, len(got), got[0])
			}
		}
		count, more := map[any]int{}, map[any]float64{}
		for _, line := range lines(t, out.String()) {
			if n, left := line["more"].(float64); left {
				more[line["event"]] += n
			} else {
				count[line["event"]]++
			}
		}
		for _, kind := range []string{"grant", "login"} {
			if count[kind] != mostInSecond || count[kind]+int(more[kind]) != floods {
				t.Errorf("%s: %d lines, %v more", kind, count[kind], more[kind])
			}
		}
		if count["loss"] != 1 {
			t.Error("lines of losses:", count["loss"])
		}
	})
}

// One lock, or one address, that is busy hides no other.
func TestBusyLockHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, "")
		for range 1000 {
			l.Add(grant("hot"))
			l.Add(Event{At: time.Now(), Kind: Login, Client: Client{Addr: "10.0.0.1:5"}})
		}
		l.Add(grant("rare"))
		l.Add(Event{At: time.Now(), Kind: Login, Client: Client{Addr: "10.9.9.9:5"}})
		if got := l.Latest(1, "", of(Grant)); got[0].Key != "rare" {
			t.Errorf("%+v", got)
		}
		if got := l.Latest(1, "", of(Login)); got[0].Addr != "10.9.9.9:5" {
			t.Errorf("%+v", got)
		}
	})
}

// What is kept is bounded in events and in bytes, whatever strangers choose as names; the newest is there.
func TestRingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, "")
		for i := range ringMost + ringMost/4 {
			e := grant(fmt.Sprint(i, strings.Repeat("x", 2*longestKey)))
			e.Kind, e.User, e.Reason = Refusal, strings.Repeat("u", 1<<20), strings.Repeat("r", 1<<20)
			l.Add(e)
			time.Sleep(time.Second)
		}
		got := l.Latest(math.MaxInt, "", all)
		size := 0
		for i := range got {
			size += len(got[i].Key) + len(got[i].User) + len(got[i].Reason)
		}
		if size > ringBytes || size < ringBytes*3/4 || len(got[0].Key) != longestKey || len(got[0].User) != longestText {
			t.Errorf("%d events of %d bytes", len(got), size)
		}
		for range ringMost + ringMost/4 {
			l.Add(Event{At: time.Now(), Kind: Kill})
			time.Sleep(time.Second)
		}
		if got := l.Latest(math.MaxInt, "", of(Kill)); len(got) > ringMost || len(got) < ringMost*3/4 || got[0].ID < got[1].ID {
			t.Errorf("%d events", len(got))
		}
	})
}

// A wait that is long is another kind of event, whether it ended with the lock or not.
func TestLongWaits(t *testing.T) {
	l := New(nil, "")
	for _, c := range []struct {
		kind   Kind
		waited time.Duration
		want   string
	}{
		{Grant, time.Millisecond, "grant "}, {Grant, time.Second, "wait granted"}, {Busy, 0, "busy "},
		{Busy, 2 * time.Second, "wait nil"}, {Refusal, time.Minute, "refusal "},
	} {
		e := grant("k")
		e.Kind, e.Waited = c.kind, c.waited
		l.Add(e)
		if got := l.Latest(1, "", all)[0]; got.Kind.String()+" "+got.Reason != c.want {
			t.Errorf("%s of %v: %+v", c.kind, c.waited, got)
		}
	}
	var none *Log
	if none.Add(grant("k")); none.Latest(1, "", all) != nil {
		t.Error("nothing has events")
	}
}

// Names are any bytes: each event is one line, and says which bytes they were.
func TestLinesOfHostileNames(t *testing.T) {
	for _, name := range []string{"", "plain", "new\nline\r\x00", `"},{"event":"loss"`, "<script>", "\xff\xfe", "\u202egnp", "\u2028", strings.Repeat("é", 2048)} {
		e := grant(name)
		e.Client = Client{name, name, name}
		e.Owner, e.Reason, e.Held = name, name, 3200*time.Millisecond
		e.bound()
		line, err := e.MarshalJSON()
		text, ends := strings.CutSuffix(string(line), "\n")
		if err != nil || !ends || strings.Contains(text, "\n") {
			t.Errorf("%q, %v: it is not one line", text, err)
		}
		var got struct {
			Name       string
			Bytes      []byte `json:"name_base64"`
			Event      string
			At         time.Time
			ClientName string `json:"client_name"`
			Held       int    `json:"held_ms"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got.Bytes != nil {
			got.Name = string(got.Bytes)
		}
		if got.Name != name || got.Event != "grant" || got.Held != 3200 || !got.At.Equal(e.At) {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name string
		to   io.Writer
	}{{"ring", nil}, {"lines", io.Discard}} {
		b.Run(c.name, func(b *testing.B) {
			l := New(c.to, "")
			b.ReportAllocs()
			e := Event{Kind: Grant, Verb: "LOCK", Lock: true, Key: "orders:17", Side: "plain", Owner: "0f3a0000-0000-0000-0000-000000000000:17",
				Client: Client{"10.0.0.1:4711", "default", "worker"}, Waited: 300 * time.Microsecond}
			for b.Loop() {
				e.At = time.Now()
				l.Add(e)
			}
		})
	}
}

// BenchmarkAddEverywhere is Add of grants on all processors, of which far more come than are kept.
func BenchmarkAddEverywhere(b *testing.B) {
	l := New(nil, "")
	b.RunParallel(func(p *testing.PB) {
		e := Event{Kind: Grant, Verb: "LOCK", Lock: true, Key: "orders:17", Side: "plain", Waited: 300 * time.Microsecond}
		for p.Next() {
			e.At = time.Now()
			l.Add(e)
		}
	})
}

// A line says an event, also to another proxy.
func TestLineIsReadBack(t *testing.T) {
	for _, e := range []Event{
		{At: time.Unix(1, 5000).UTC(), Kind: Loss, Proxy: "p", ID: 7, Verb: "LOCK", Lock: true, Key: "k\xff<\x00", DB: 3, Side: "read", Owner: "u:1",
			Client: Client{Addr: "10.0.0.1:1", User: "app", Name: "job"}, Waited: time.Second, Held: 2 * time.Millisecond, Reason: "unrenewed"},
		{At: time.Unix(2, 0).UTC(), Kind: Grant, Lock: true}, {At: time.Unix(3, 0).UTC(), Kind: Login, More: 9}, {At: time.Unix(4, 0).UTC(), Kind: unknown},
	} {
		text, err := e.MarshalJSON()
		var got Event
		if err2 := json.Unmarshal(text, &got); err != nil || err2 != nil || got != e {
			t.Errorf("%v, %v: %+v from %s", err, err2, got, text)
		}
	}
}
