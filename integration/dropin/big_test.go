package dropin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Values on both sides of every threshold, both ways.
func TestDropinBigValues(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL())
	harness.Protocols(t, func(t *testing.T, proto int) {
		w := harness.Dial(t, p.Addr())
		w.Do("HELLO", fmt.Sprint(proto))
		defer holds(p, 500)
		for _, n := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 28_000_000} {
			value := newGenerator(uint64(n), false).bytes(n)
			began := time.Now()
			all := harness.EncodeAll([][]string{{"SET", "big", value}, {"SET", "small", "x"}, {"GET", "big"}, {"GET", "small"}, {"GET", "big"}, {"STRLEN", "big"}, {"GETRANGE", "big", "1", "-2"}, {"APPEND", "big", "x"}, {"GETRANGE", "big", "-3", "-1"}})
			got := w.Pipeline(all, 9)
			frame := fmt.Sprintf("$%d\r\n%s\r\n", n, value)
			if want := []string{"+OK\r\n", "+OK\r\n", frame, "$1\r\nx\r\n", frame, fmt.Sprintf(":%d\r\n", n),
				harness.Bulks(value[1 : n-1])[0], fmt.Sprintf(":%d\r\n", n+1), harness.Bulks(value[n-2:] + "x")[0]}; !slices.Equal(got, want) {
				t.Errorf("%d bytes: the replies are wrong", n)
			}
			if direct, _ := redis.Do(t, "GET", "big").([]byte); string(direct) != value+"x" {
				t.Errorf("%d bytes: Redis holds another value", n)
			}
			t.Logf("%d bytes, once there and three times back: %v", n, time.Since(began).Round(time.Millisecond))
		}
	})
}

// Replies of 100,000 elements and pipelines of 10,000 commands.
func TestDropinManyElements(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL())
	harness.Protocols(t, func(t *testing.T, proto int) {
		direct, through := (&pair{direct: redis, proxy: p}).dials(t, proto)
		direct.Do("FLUSHALL")
		const n = 100_000
		push := []string{"RPUSH", "l"}
		hset := []string{"HSET", "h"}
		sadd := []string{"SADD", "s"}
		mset := []string{"MSET"}
		defer holds(p, 300)
		for i := range n {
			push = append(push, fmt.Sprint("element ", i))
			hset = append(hset, fmt.Sprint("f", i), fmt.Sprint(i))
			sadd = append(sadd, fmt.Sprint("member ", i))
			mset = append(mset, fmt.Sprint("key ", i), "")
		}
		if got := through.Do(push...); got != fmt.Sprintf(":%d\r\n", n) {
			t.Errorf("RPUSH of %d: %q", n, got)
		}
		if got := through.Do(hset...); got != fmt.Sprintf(":%d\r\n", n) {
			t.Errorf("HSET of %d: %q", n, got)
		}
		if got := through.Do(sadd...) + through.Do(mset...); got != fmt.Sprintf(":%d\r\n+OK\r\n", n) {
			t.Errorf("SADD and MSET of %d: %q", n, got)
		}
		for range 3 { // the first moves the client to a connection of its own
			for _, args := range [][]string{{"LRANGE", "l", "0", "-1"}, {"HGETALL", "h"}, {"HKEYS", "h"}, {"SMEMBERS", "s"}, {"KEYS", "*"}} {
				if want, got := direct.Do(args...), through.Do(args...); want != got {
					t.Errorf("%v: %d bytes, Redis' are %d", args, len(got), len(want))
				}
			}
		}
		commands := make([][]string, 10_000)
		for i := range commands {
			commands[i] = []string{"SET", fmt.Sprint("k", i), fmt.Sprint(i)}
			if i%2 == 1 {
				commands[i] = []string{"GET", fmt.Sprint("k", i-1)}
			}
		}
		began := time.Now()
		for i, got := range through.Pipeline(harness.EncodeAll(commands), len(commands)) {
			want := "+OK\r\n"
			if i%2 == 1 {
				want = harness.Bulks(fmt.Sprint(i - 1))[0]
			}
			if got != want {
				t.Fatalf("reply %d of a pipeline: %q, want %q", i, got, want)
			}
		}
		t.Logf("a pipeline of %d: %v", len(commands), time.Since(began).Round(time.Millisecond))
	})
}

// A client that reads 50 MB slowly holds up nobody else, and the proxy does not grow by what it has not read.
func TestDropinSlowReader(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL())
	const n = 50 << 20
	redis.Do(t, "SET", "big", strings.Repeat("x", n))
	redis.Do(t, "SET", "small", "x")
	before := residentMB(t, p.Pid())
	quick := harness.Dial(t, p.Addr())
	quick.Do("GET", "small")
	slow := harness.Dial(t, p.Addr())
	slow.Send("GET", "big")
	if _, err := slow.R.Peek(1); err != nil { // that reply is held whole, those of a client known for its size are not
		t.Fatal(err)
	}
	for range 3 {
		slow.Send("GET", "big")
	}
	done := make(chan error, 1)
	go readSlowly(slow, 4, n, done)
	var took []time.Duration
	most := before
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the slow reader: %v", err)
			}
			running = false
		default:
			began := time.Now()
			if got := quick.Do("GET", "small"); got != "$1\r\nx\r\n" {
				t.Fatalf("GET: %q", got)
			}
			took = append(took, time.Since(began))
			if len(took)%100 == 0 {
				most = max(most, residentMB(t, p.Pid()))
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
	slices.Sort(took)
	p50, p99, longest := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	t.Logf("beside a slow reader of 4 × 50 MB: %d GETs, p50 %v, p99 %v, longest %v; resident %d MB before, at most %d MB",
		len(took), p50, p99, longest, before, most)
	if p99 > harness.Bound(time.Second) {
		t.Errorf("p99 of another client is %v", p99)
	}
	if bound := 400 * harness.Sanitizer(); most-before > bound {
		t.Errorf("the proxy grew by %d MB, more than %d MB", most-before, bound)
	}
}

// readSlowly reads count bulk replies of n bytes, a megabyte each few milliseconds.
func readSlowly(w *harness.Wire, count, n int, done chan<- error) {
	chunk := make([]byte, 1<<20)
	left := count * (len(fmt.Sprintf("$%d\r\n\r\n", n)) + n)
	for left > 0 {
		time.Sleep(8 * time.Millisecond)
		_ = w.C.SetReadDeadline(time.Now().Add(harness.Patience))
		got, err := io.ReadFull(w.R, chunk[:min(left, len(chunk))])
		left -= got
		if err != nil {
			done <- err
			return
		}
	}
	done <- nil
}

// holds fails the test if the proxy has ever taken more than so many MB.
func holds(p *harness.Proxy, mb int) {
	most := int(p.Peak() >> 20)
	p.T.Logf("resident %d MB at most", most)
	if most > mb*harness.Sanitizer() {
		p.T.Errorf("more than %d MB", mb)
	}
}

// residentMB is the resident memory of a process; 0 where /proc does not tell.
func residentMB(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kB int
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		t.Fatal(err)
	}
	return kB >> 10
}

// Many clients that ask for much and do not read: once they are known for it, the proxy holds next to nothing of theirs.
func TestDropinManySlowReaders(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL())
	const clients, n = 10, 10 << 20
	redis.Do(t, "SET", "big", strings.Repeat("x", n))
	var all []*harness.Wire
	for range clients {
		w := harness.Dial(t, p.Addr())
		w.Do("GET", "big")
		all = append(all, w)
	}
	before := residentMB(t, p.Pid())
	for _, w := range all {
		w.Do("GET", "big") // who has asked for nothing big for 10 s is not known any more
		for range 5 {
			w.Send("GET", "big")
		}
	}
	quick := harness.Dial(t, p.Addr())
	most := before
	for range 100 {
		quick.Do("PING")
		most = max(most, residentMB(t, p.Pid()))
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d clients that do not read their 5 × 10 MB: resident %d MB before, at most %d MB", clients, before, most)
	if bound := 100 * harness.Sanitizer(); most-before > bound {
		t.Errorf("the proxy grew by %d MB, more than %d MB", most-before, bound)
	}
	for range 5 {
		if got := all[clients-1].Read(); len(got) != n+len(fmt.Sprint(n))+5 {
			t.Errorf("a reply of %d bytes", len(got))
		}
	}
}
