package proxies

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// engine has the locks of a proxy.
type engine struct {
	list   []lock.Entry
	slow   atomic.Int64 // ns that a look takes at least
	mu     sync.Mutex   // guards forced
	forced []string
	log    *events.Log
}

func (e *engine) Each(fits func(int, string) bool, f func(lock.Entry)) {
	time.Sleep(time.Duration(e.slow.Load()) / 2) // there are two of them
	for _, one := range e.list {
		if fits(one.DB, one.Key) {
			f(one)
		}
	}
}

func (e *engine) Stats() lock.Stats { return lock.Stats{Held: int64(len(e.list))} }

func (e *engine) Forced(db int, key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forced = append(e.forced, fmt.Sprint(db, " ", key))
}

func (e *engine) heard() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.forced, ", ")
}

// open is a proxy's exchange at a Redis.
func open(t *testing.T, at, id, user string, e *engine) (x *Exchange, end func()) {
	t.Helper()
	ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: at, User: user, Password: user}, upstream.ControlOptions{})
	x = New(ExchangeOptions{Self: Proxy{ID: id, Host: "host-" + id[:1], Started: time.Now()}, Home: At(ctl), Locks: e, Events: e.log})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { x.Run(ctx) })
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		ctl.Close()
	})
	t.Cleanup(end)
	return x, end
}

// seen waits until an Overview is as it should be.
func seen(t *testing.T, x *Exchange, q Question, what string, is func(Overview) bool) (v Overview) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if v = x.Ask(t.Context(), q); is(v) {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s: %+v", what, v)
		}
	}
}

func up(n int) func(Overview) bool {
	return func(v Overview) bool {
		there := 0
		for _, s := range v.Proxies {
			if s.State == "up" {
				there++
			}
		}
		return there == n && len(v.Silent()) == 0 && v.Proxies[0].Trouble == ""
	}
}

// A lock is found at a proxy that has a hundred thousand; who shares a question is answered at once.
func TestAskAmongManyLocks(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	many := &engine{list: []lock.Entry{entry("zzz-stuck", 0, "job", false, 2*time.Hour)}}
	for i := range 100000 {
		many.list = append(many.list, entry(fmt.Sprintf("a:%06d", i), 0, "job", false, time.Second))
	}
	a, _ := open(t, redis.Addr(), idA, "", &engine{})
	_, endB := open(t, redis.Addr(), idB, "", many)
	seen(t, a, Question{Name: []byte("zzz"), Locks: 9, Of: 1}, "the one", func(v Overview) bool { return v.Of == 1 && len(v.Locks) == 1 })
	v := seen(t, a, Question{Sort: "held", Locks: 5, Of: 1}, "all", func(v Overview) bool { return v.Of == 100001 })
	if v.Locks[0].Name != "zzz-stuck" || v.Locks[0].Holders[0].Proxy != idB || len(v.Locks) != 5 {
		t.Errorf("%+v", v.Locks)
	}
	if of, none := a.Of(t.Context(), idB+":1"); of.Host != "host-b" || none {
		t.Errorf("%+v, %v", of, none)
	}
	if of, none := a.Of(t.Context(), idC+":1"); of.ID != "" || !none {
		t.Errorf("Redisson's: %+v, %v", of, none)
	}
	endB()
	seen(t, a, Question{Locks: 5}, "it has gone", func(v Overview) bool { return len(v.Proxies) == 2 && v.Proxies[1].State == "gone" })
}

// What has happened at three proxies is one list, the newest first, of those that are asked for; who does not answer is
// named. Names that are long cost rows, and no answer.
func TestEventsOfAll(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	began, long := time.Now().Add(-time.Hour), strings.Repeat("\x00", 4096)
	logs := [3]*events.Log{events.New(nil, ""), events.New(nil, ""), events.New(nil, "")}
	for i := range 6 {
		e := events.Event{At: began.Add(time.Duration(i) * time.Minute), Kind: events.Loss, Lock: true, Key: fmt.Sprintf("k%d\xff", i), Reason: "<gone>"}
		e.Client, e.Held = events.Client{Addr: "10.0.0.1:5", User: "app", Name: "job"}, 3*time.Second
		logs[i%3].Add(e)
	}
	logs[1].Add(events.Event{At: began, Kind: events.Login})
	for range 20 {
		logs[2].Add(events.Event{At: time.Now(), Kind: events.Busy, Lock: true, Key: long})
	}
	a, _ := open(t, redis.Addr(), idA, "", &engine{log: logs[0]})
	open(t, redis.Addr(), idB, "", &engine{log: logs[1]})
	open(t, redis.Addr(), idC, "", &engine{log: logs[2]})
	seen(t, a, Question{}, "all three", up(2))
	for _, c := range []struct {
		q    Question
		of   int
		want string // the keys
	}{
		{Question{Events: 4, Kind: "loss"}, 6, "k5 k4 k3 k2"},
		{Question{Events: 200, Name: []byte("k1")}, 1, "k1"},
		{Question{Events: 200, Kind: "loss", Since: began.Add(270 * time.Second)}, 1, "k5"},
		{Question{Events: 200, Kind: "login"}, 1, ""},
		{Question{Events: 200, Kind: "no"}, 0, ""},
	} {
		v, keys := a.Ask(t.Context(), c.q), []string{}
		for _, e := range v.Events {
			keys = append(keys, strings.TrimSuffix(e.Key, "\xff"))
		}
		if v.Of != c.of || strings.Join(keys, " ") != c.want || len(v.Silent()) > 0 {
			t.Errorf("%+v: %d, %q, %q", c.q, v.Of, keys, v.Silent())
		}
	}
	got := a.Ask(t.Context(), Question{Events: 1, Kind: "loss"}).Events[0]
	if got.Proxy != idC || got.Reason != "<gone>" || got.Name != "job" || got.Held != 3*time.Second || !got.Lock || !got.At.Equal(began.Add(5*time.Minute)) {
		t.Errorf("%+v", got)
	}
	if v := a.Ask(t.Context(), Question{Events: 200, Kind: "busy"}); v.Of != 20 || len(v.Events) < 5 || len(v.Events) >= 20 || v.Events[0].Key != long {
		t.Errorf("of long names %d of %d", len(v.Events), v.Of)
	}
	if of := a.Ask(t.Context(), Question{Events: 200, Here: true}).Of; of != 2 {
		t.Errorf("%d here", of)
	}
	stranger := redis.Dial(t)
	if _, err := stranger.Do("SUBSCRIBE", asking); err != nil {
		t.Fatal(err)
	}
	seen(t, a, Question{Events: 10}, "one does not answer", func(v Overview) bool { return len(v.Silent()) == 1 && len(v.Events) == 10 })
}

// A proxy that has answered too late is waited for the next time as long as others are.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	b := &engine{list: []lock.Entry{entry("k", 0, "job", false, time.Second)}}
	a, _ := open(t, redis.Addr(), idA, "", &engine{})
	open(t, redis.Addr(), idB, "", b)
	seen(t, a, Question{Locks: 1}, "both", up(1))
	b.slow.Store(int64(answerTime + lateTime))
	seen(t, a, Question{Locks: 2}, "it does not answer in time", func(v Overview) bool { return len(v.Silent()) == 1 })
	b.slow.Store(int64(2 * lateTime))
	seen(t, a, Question{Locks: 3}, "it answers in time", up(1))
}

// What is said on the channels by somebody else crashes nothing, grows nothing, and changes nothing.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	eb := &engine{list: []lock.Entry{entry("mine", 0, "job", false, time.Second)}}
	a, _ := open(t, redis.Addr(), idA, "", &engine{})
	open(t, redis.Addr(), idB, "", eb)
	seen(t, a, Question{Locks: 9}, "both", up(1))
	evil := redis.Dial(t)
	big := strings.Repeat("[", 1<<20)
	for _, text := range []string{"", " ", "x", big, idC, "{}", "null", `{"id":"` + big + `"}`, `{"id":1,"from":{"id":"` + idC + `"}}`, `{"id":"1","from":{"id":"` + idC + `"},"ask":{"locks":-5,"of":-5}}`,
		`{"from":{"id":"` + idC + `"},"ask":{"locks":1e9}}`, `{"from":{"id":"` + idC + `"},"ask":{"locks":999999999,"of":999999999,"name":"AAAA"}}`, `{"from":{"id":"` + idC + `"},"ask":{"name":"!"}}`,
		`{"from":{"id":"` + idB + `"},"ask":{}}`, `{"from":{"id":"x"},"ask":{}}`, `{"id":"1","from":{"id":"` + idA + `"}}`, `{"id":"` + big[:1000] + `","from":{"id":"` + idC + `"},"ask":{}}`} {
		if _, err := evil.Do("PUBLISH", asking, text); err != nil {
			t.Fatal(err)
		}
	}
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		for range 1000 { // a flood
			_ = evil.Send("PUBLISH", asking, `{"id":"1","from":{"id":"`+idC+`"},"ask":{"locks":200,"of":100}}`)
			_ = evil.Send("PUBLISH", answersFor+idA, "nobody "+`{"id":"`+idC+`"}`)
		}
		if _, err := evil.Do("PUBLISH", answersFor+idA, big); err != nil {
			t.Fatal(err)
		}
	}
	seen(t, a, Question{Locks: 9}, "the locks beside a flood", func(v Overview) bool { return v.Of == 1 && v.Locks[0].Name == "mine" })
	runtime.GC()
	var after runtime.MemStats
	if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+64<<20 {
		t.Errorf("it has grown by %d MiB", (after.HeapAlloc-before.HeapAlloc)>>20)
	}
	if eb.heard() != "" {
		t.Error(eb.heard())
	}
}

// A user with all rights but on these channels neither hears nor says anything there. News of a lock that was freed by
// force reaches the proxies. Without rights on the channels a proxy says so.
func TestRightsOnTheChannels(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	redis.Do(t, "ACL", "SETUSER", "svc", "on", ">svc", "~*", "resetchannels", "&lockproxy:*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">app", "~*", "resetchannels", "&other:*", "+@all")
	e := &engine{}
	a, _ := open(t, redis.Addr(), idA, "svc", &engine{})
	open(t, redis.Addr(), idB, "svc", e)
	seen(t, a, Question{Locks: 9}, "both", up(1))
	app := redis.Dial(t)
	if _, err := app.Do("AUTH", "app", "app"); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]any{{"SUBSCRIBE", asking}, {"PSUBSCRIBE", "*"}, {"PSUBSCRIBE", "lockproxy:*"}, {"SUBSCRIBE", answersFor + idA}, {"PUBLISH", asking, "x"}, {"PUBLISH", answersFor + idA, "x"}} {
		if _, err := app.Do(words[0].(string), words[1:]...); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%v: %v", words, err)
		}
	}
	a.Freed(t.Context(), 3, "k\xff")
	for end := time.Now().Add(patience); e.heard() != "3 k\xff"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q", e.heard())
		}
	}
	deaf, _ := open(t, redis.Addr(), idC, "app", &engine{list: []lock.Entry{entry("own", 0, "job", false, time.Second)}})
	seen(t, deaf, Question{Locks: 9}, "why it is deaf", func(v Overview) bool { return strings.Contains(v.Proxies[0].Trouble, "NOPERM") && v.Of == 1 })
}

// A proxy hears the others again after Redis was away.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	a, _ := open(t, redis.Addr(), idA, "", &engine{})
	open(t, redis.Addr(), idB, "", &engine{})
	seen(t, a, Question{}, "both", up(1))
	redis.Kill()
	seen(t, a, Question{Locks: 1}, "trouble", func(v Overview) bool { return v.Proxies[0].Trouble != "" && len(v.Silent()) == 1 })
	redis.Restart()
	seen(t, a, Question{Locks: 1}, "both again", up(1))
}
