package faults

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// bystander is a well-behaved client beside an attack: its replies must stay its own, and come in time.
type bystander struct {
	t     testing.TB
	stop  atomic.Bool
	group sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration
}

// watchOver starts bystanders of both RESP versions; finish stops them.
func watchOver(t testing.TB, addr string) *bystander {
	b := &bystander{t: t}
	for i := range 4 {
		w, null := harness.Dial(t, addr), "$-1\r\n"
		if i%2 == 1 {
			w, null = harness.Dial3(t, addr), "_\r\n"
		}
		b.group.Go(func() { b.live(w, i, null) })
	}
	return b
}

func (b *bystander) live(w *harness.Wire, i int, null string) {
	key, lock := fmt.Sprint("bystander", i), fmt.Sprint("bystander-lock", i)
	for n := 0; !b.stop.Load(); n++ {
		value := fmt.Sprintf("%d-%d", i, n)
		for _, step := range [][2][]string{
			{{"SET", key, value}, {"+OK\r\n"}},
			{{"GET", key}, {fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)}},
			{{"GET", "nothing"}, {null}},
			{{"LOCK", lock, "SELF"}, {"+OK\r\n"}},
			{{"ECHO", value}, {fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)}},
			{{"UNLOCK", lock}, {":1\r\n"}},
		} {
			began := time.Now()
			got, err := w.Try(step[0]...)
			if err != nil || got != step[1][0] {
				b.t.Errorf("a bystander's %q: %.200q, %v; want %q", step[0], got, err, step[1][0])
				return
			}
			b.mu.Lock()
			b.took = append(b.took, time.Since(began))
			b.mu.Unlock()
		}
		time.Sleep(harness.Breath(2 * time.Millisecond))
	}
}

// served is how many commands of bystanders have been answered.
func (b *bystander) served() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.took)
}

// finish says what the bystanders saw: commands, their median and longest time.
func (b *bystander) finish() (n int, median, longest time.Duration) {
	b.stop.Store(true)
	b.group.Wait()
	slices.Sort(b.took)
	if len(b.took) == 0 {
		b.t.Error("no bystander was served")
		return 0, 0, 0
	}
	return len(b.took), b.took[len(b.took)/2], b.took[len(b.took)-1]
}

// bytesAttack is what one connection sends, whatever comes back.
type bytesAttack struct {
	name  string
	send  func(c net.Conn)
	end   string // how the last reply must begin; "" = the connection need not be ended
	times int    // connections side by side
}

func once(text string) func(net.Conn) { return func(c net.Conn) { _, _ = c.Write([]byte(text)) } }

// drip sends text in pieces of n bytes, each a segment of its own as far as the kernel lets it.
func drip(n int, text string) func(net.Conn) {
	return func(c net.Conn) {
		for rest := text; len(rest) > 0; rest = rest[min(n, len(rest)):] {
			if _, err := c.Write([]byte(rest[:min(n, len(rest))])); err != nil {
				return
			}
		}
	}
}

var hostileBytes = []bytesAttack{
	{"R1 bulk length that overflows", once("*1\r\n$9223372036854775807\r\n"), "-ERR Protocol error: invalid bulk length", 20},
	{"R1 longer than any integer", once("*1\r\n$99999999999999999999999999\r\n"), "-ERR Protocol error: invalid bulk length", 20},
	{"R2 array length that overflows", once("*9223372036854775807\r\n"), "-ERR Protocol error: invalid multibulk length", 20},
	{"R2 array of a thousand million", once("*1000000000\r\n$1\r\na\r\n"), "-ERR Protocol error: invalid multibulk length", 20},
	{"R3 a bulk byte by byte", drip(1, "*3\r\n$3\r\nSET\r\n$1\r\nr\r\n$100000\r\n"+strings.Repeat("x", 100000)+"\r\n"), "+OK", 4},
	{"R4 bulk that will not fit", once("*2\r\n$4\r\nECHO\r\n$536870913\r\n"), "-ERR Protocol error: invalid bulk length", 20},
	{"R4 inline without end", drip(4096, strings.Repeat("A", 1<<20)), "-ERR Protocol error: too big inline request", 20},
	{"R4 count line without end", drip(4096, "*"+strings.Repeat("1", 1<<20)), "-ERR Protocol error: ", 20},
	{"R5 many small arguments in small pieces", drip(100, "*16001\r\n$4\r\nMGET\r\n"+strings.Repeat("$1\r\na\r\n", 16000)), "*16000", 4},
	{"R6 negative bulk length", once("*1\r\n$-7\r\n"), "-ERR Protocol error: invalid bulk length", 20},
	{"R6 Tile38's dialect", once("$9223372036854775807 PING\r\n"), "-ERR", 20},
	{"R10 good commands before bad ones", once("PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n:1\r\n"), "-ERR Protocol error: expected '$', got ':'", 20},
	{"unbalanced quotes", once("SET \"a\r\n"), "-ERR Protocol error: unbalanced quotes in request", 20},
	{"zero and negative arrays", once("*0\r\n*-1\r\n*-5\r\nPING\r\n"), "+PONG", 20},
	{"bytes of a TLS hello", once("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00\xff", 300) + "\r\n\r\n"), "", 20},
	{"a web browser", once("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nFLUSHALL\r\n"), "", 20},
	{"nothing but zeroes", drip(8192, strings.Repeat("\x00", 1<<20)), "-ERR Protocol error: too big inline request", 20},
	{"a long name and long arguments", once("*2\r\n$65000\r\n" + strings.Repeat("L", 65000) + "\r\n$0\r\n\r\n"), "-ERR unknown command", 20},
}

// last sends an attack and returns the reply that has to come at its end; if none has to, the last before the connection's, or before
// seconds of silence.
func (a bytesAttack) last(t testing.TB, addr string) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	go a.send(c)
	w, reply, patience := harness.NewWire(t, c), "", harness.Patience
	if a.end == "" {
		patience = 3 * time.Second
	}
	for {
		got, err := w.TryRead(patience)
		if err != nil {
			return reply
		}
		reply = got
		if a.end != "" && strings.HasPrefix(reply, a.end) {
			return reply
		}
	}
}

// Bytes that kill, hang or fill other servers end their own connection and disturb nobody.
func TestHostileBytes(t *testing.T) {
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	watch := watchOver(t, p.Addr())
	memory, busy, began := p.RSS(), p.CPU(), time.Now()
	most, worst := memory, ""
	for _, a := range hostileBytes {
		before := p.CPU()
		start := time.Now()
		harness.Together(a.times, func(int) {
			if got := a.last(t, p.Addr()); !strings.HasPrefix(got, a.end) {
				t.Errorf("%s: the last reply is %.80q", a.name, got)
			}
		})
		if now := p.RSS(); now > most {
			most, worst = now, a.name
		}
		if testing.Verbose() {
			t.Logf("%-42s ×%-2d %5v, CPU %v", a.name, a.times, time.Since(start).Round(time.Millisecond), p.CPU()-before)
		}
	}
	n, median, longest := watch.finish()
	t.Logf("%d attacks in %v: %d commands of bystanders, median %v, longest %v; memory %d MiB before, at most %d MiB (%s); CPU %v",
		len(hostileBytes), time.Since(began).Round(time.Millisecond), n, median, longest, memory>>20, most>>20, worst, p.CPU()-busy)
	if most > memory+200<<20 {
		t.Errorf("memory grew to %d MiB", most>>20)
	}
	if longest > harness.Bound(3*time.Second) {
		t.Errorf("a bystander waited for %v", longest)
	}
	if got := harness.Dial(t, p.Addr()).Do("PING"); got != "+PONG\r\n" {
		t.Error(got)
	}
}

// R9: what comes behind QUIT in the same packet is not run. R2: once the attackers are gone no CPU is spent.
func TestNothingGoesOnAfterTheEnd(t *testing.T) {
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	server.Do(t, "SET", "keep", "me")
	w := harness.Dial(t, p.Addr())
	if _, err := w.C.Write([]byte("PING\r\nQUIT\r\nSET evil 1\r\nFLUSHALL\r\n")); err != nil {
		t.Fatal(err)
	}
	if got := w.Read() + w.Read(); got != "+PONG\r\n+OK\r\n" || !w.Closed() {
		t.Errorf("PING, QUIT: %q", got)
	}
	harness.Together(50, func(int) { _ = bytesAttack{send: once("*2147483647\r\n$1\r\na\r\n"), end: "-"}.last(t, p.Addr()) })
	harness.Eventually(t, "CPU is idle", func() bool {
		before := p.CPU()
		time.Sleep(300 * time.Millisecond)
		return p.CPU()-before <= 60*time.Millisecond
	})
	if keep, evil := server.Do(t, "EXISTS", "keep"), server.Do(t, "EXISTS", "evil"); keep != int64(1) || evil != int64(0) {
		t.Error("commands behind QUIT were run")
	}
}
