package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
)

// told answers as a proxy would.
type told struct {
	mu   sync.Mutex
	rows map[string][]record
	lock string // what one lock is like
	err  error
}

func (p *told) ask(_ context.Context, q *query) (facts, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.rows[q.list.name]
	if q.all {
		all = p.rows["all "+q.list.name]
	}
	return facts{
		at: time.Now(), lock: p.lock, rows: all[:min(q.rows, len(all))],
		stats: record{"version": "1.2", "upstream": "redis", "upstream_addr": "r:1", "clients": "12", "locks_held": "1234"},
	}, p.err
}

func (p *told) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// terminal is a screen without a terminal, and what a user does there.
type terminal struct {
	t      *testing.T
	screen tcell.SimulationScreen
	ended  chan error

	mu   sync.Mutex
	text string // what stands there
}

func open(t *testing.T, p asker) *terminal {
	t.Helper()
	o, err := parse([]string{"--every", "100ms", "--address", "proxy:7"})
	if err != nil {
		t.Fatal(err)
	}
	on := &terminal{t: t, screen: tcell.NewSimulationScreen("UTF-8"), ended: make(chan error, 1)}
	v := newView(o, p)
	shown := make(chan struct{}) // the size of a screen is set once it is shown
	var once sync.Once
	v.app.SetAfterDrawFunc(func(s tcell.Screen) {
		once.Do(func() { close(shown) })
		on.see(s)
	})
	go on.run(t.Context(), v)
	<-shown
	on.screen.SetSize(160, 24)
	t.Cleanup(func() {
		if len(on.ended) == 0 {
			go v.app.QueueUpdate(v.app.Stop) // in the event loop: elsewhere it would race with its end
		}
		if err := <-on.ended; err != nil {
			t.Error(err)
		}
	})
	return on
}

// run shows the view until the user leaves.
func (on *terminal) run(ctx context.Context, v *view) { on.ended <- v.run(ctx, on.screen) }

// see keeps what stands on the screen.
func (on *terminal) see(s tcell.Screen) {
	var b strings.Builder
	width, height := s.Size()
	for y := range height {
		b.WriteByte('\n')
		for x := range width {
			cell, style, _ := s.Get(x, y)
			if _, _, how := style.Decompose(); x == 0 && how&tcell.AttrReverse != 0 {
				b.WriteString("»") // the selected row
			}
			b.WriteString(cell)
		}
	}
	on.mu.Lock()
	defer on.mu.Unlock()
	on.text = b.String()
}

func (on *terminal) seen() string {
	on.mu.Lock()
	defer on.mu.Unlock()
	return on.text
}

// waitFor waits until all that is wanted stands on the screen, and nothing of what is not.
func (on *terminal) waitFor(want []string, not ...string) {
	on.t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		text := on.seen()
		fits := true
		for _, s := range want {
			fits = fits && strings.Contains(text, s)
		}
		for _, s := range not {
			fits = fits && !strings.Contains(text, s)
		}
		if fits {
			return
		}
		if time.Now().After(end) {
			on.t.Fatalf("not %q without %q:%s", want, not, text)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (on *terminal) types(keys string) {
	for _, r := range keys {
		switch r {
		case '\n':
			on.screen.InjectKey(tcell.KeyEnter, 0, 0)
		case '\t':
			on.screen.InjectKey(tcell.KeyTab, 0, 0)
		case '\x1b':
			on.screen.InjectKey(tcell.KeyEscape, 0, 0)
		default:
			on.screen.InjectKey(tcell.KeyRune, r, 0)
		}
	}
}

// The lists, the filter, a pause, trouble, and names that would do something to a terminal.
func TestView(t *testing.T) {
	t.Parallel()
	p := &told{rows: map[string][]record{
		"Locks":   {{"key": "orders", "addr": "10.0.0.1:5", "name": "[red]shop", "ttl-ms": "12000", "lease-ms": "30000"}, {"key": "bad\x1b[2J\xff", "owner": "me"}},
		"Waiters": {{"key": "invoices", "place": "3", "waiting-ms": "2500"}},
		"Hot":     {{"key": "seats", "waits": "77", "waits-over": "3", "waited-ms": "90000"}},
	}}
	on := open(t, p)
	on.waitFor([]string{"lockproxy 1.2", "clients: 12", "1,234 held", "LOCK", "orders", "10.0.0.1:5 [red]shop", "12 s of 30 s", `bad\x1b[2J\xff`, "1 Locks"}, "\x1b")
	p.change(func() {
		p.rows["Locks"] = append(p.rows["Locks"], record{"key": "", "db": "0", "owner": "of the empty name"})
	})
	on.waitFor([]string{`""`, "of the empty"})
	on.types("/ORD")
	on.waitFor([]string{"only with: ORD", "orders"}, "bad")
	on.types("q1\n") // as a part of the filter these are no keys
	on.waitFor([]string{"only with: ORDq1"}, "orders")
	on.types("/\x1b")
	on.waitFor([]string{"orders", "bad"}, "only with")
	on.types("2")
	on.waitFor([]string{"invoices", "2.5 s"}, "orders")
	on.types("p")
	on.waitFor([]string{"p go on"})
	p.change(func() { p.rows["Waiters"] = []record{{"key": "other"}} })
	on.types("\t\t\t")
	on.waitFor([]string{"seats", "77", "1 min 30 s"})
	on.types("2")
	on.waitFor([]string{"other"})
	p.change(func() { p.rows["Waiters"] = nil })
	on.types("p")
	on.waitFor([]string{"PLACE"}, "other")
	p.change(func() { p.err = errors.New("NOPERM \x1b]0;x") })
	on.waitFor([]string{"proxy:7: NOPERM \\x1b]0;x"})
	p.change(func() { p.err = nil })
	on.waitFor([]string{"lockproxy 1.2"})
	on.types("q")
	if err := <-on.ended; err != nil {
		t.Error(err)
	}
	on.ended <- nil // for who closes it
}

// TestEmptyList: the keys that move from row to row do nothing in a list without rows, where tview would look for the next one for ever.
func TestEmptyList(t *testing.T) {
	t.Parallel()
	p := &told{rows: map[string][]record{}}
	on := open(t, p)
	on.waitFor([]string{"LOCK"})
	for _, key := range []tcell.Key{tcell.KeyDown, tcell.KeyUp, tcell.KeyPgDn, tcell.KeyPgUp, tcell.KeyHome, tcell.KeyEnd, tcell.KeyEnter, tcell.KeyEscape} {
		on.screen.InjectKey(key, 0, 0)
	}
	on.types("jkgG/zzz\njk/\x1b")
	p.change(func() { p.rows["Locks"] = []record{{"key": "orders"}, {"key": "seats"}} })
	on.waitFor([]string{"orders", "seats"})
	on.types("jjkG/zzz\n")
	on.waitFor([]string{"only with: zzz"}, "orders")
	on.types("jk")
	p.change(func() { p.rows["Locks"] = nil })
	on.types("q")
	if err := <-on.ended; err != nil {
		t.Error(err)
	}
	on.ended <- nil // for who closes it
}

// TestLongList: a list that is longer than the terminal is shown from its beginning, whatever was shown before, and from elsewhere only when the
// user has gone there.
func TestLongList(t *testing.T) {
	t.Parallel()
	const begin, end = "lock-000", "lock-099"
	long := func(holder string) (rows []record) {
		for i := range 100 {
			rows = append(rows, record{"key": fmt.Sprintf("lock-%03d", i), "name": holder})
		}
		return rows
	}
	p := &told{rows: map[string][]record{"Locks": long("shop"), "Waiters": {{"key": "invoices"}}}}
	on := open(t, p)
	on.waitFor([]string{begin}, end)
	on.types("2")
	on.waitFor([]string{"invoices"}, begin)
	on.types("1")
	on.waitFor([]string{begin}, end)
	on.types("G")
	on.waitFor([]string{end}, begin)
	p.change(func() { p.rows["Locks"] = long("bank") })
	on.waitFor([]string{"bank", end}, begin)
	on.types("/lock-05\n")
	on.waitFor([]string{"lock-059"}, end)
	on.types("/\x1b")
	on.waitFor([]string{end}, begin) // the selected row is in view
	on.types("2")
	on.waitFor([]string{"invoices"}, end)
	on.types("1")
	on.waitFor([]string{begin}, end)
	on.screen.SetSize(160, 120)
	on.waitFor([]string{begin, end})
	on.screen.SetSize(160, 24)
	on.waitFor([]string{begin}, end)
	on.screen.InjectKey(tcell.KeyEnd, 0, 0)
	on.waitFor([]string{end}, begin)
	on.screen.InjectKey(tcell.KeyHome, 0, 0)
	on.waitFor([]string{begin}, end)
}

// What is wrong on the command line is said, and nothing else is done.
func TestParse(t *testing.T) {
	for _, args := range []string{"--every 1ms", "--rows 0", "--rows 10001", "--rows x", "--address redis+sentinel://a:1/m", "--address http://x", "more", "--what"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	t.Setenv("LOCKPROXY_ADDRESS", "redis://ann:pass@h:7/3")
	o, err := parse(nil)
	if err != nil || o.target.Addr != "h:7" || o.target.User != "ann" || o.target.Password != "pass" || o.target.DB != 3 || o.every != time.Second || o.rows != 200 || o.once {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestLongNames: a long name of a lock, an owner or a client leaves room for who holds it, and for how long.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("L", 200)
	p := &told{rows: map[string][]record{"Locks": {{"key": long, "owner": long, "addr": "10.0.0.1:5", "name": long, "user": long, "held-ms": "2500"}}}}
	on := open(t, p)
	on.waitFor([]string{"CLIENT", "10.0.0.1:5", "HELD", "2.5 s"})
	on.types("q")
	if err := <-on.ended; err != nil {
		t.Error(err)
	}
	on.ended <- nil
}

// order says whether texts stand on the screen in this order, from above.
func (on *terminal) order(texts ...string) {
	on.t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		screen, at := on.seen(), -1
		fits := slices.IsSortedFunc(texts, func(a, b string) int { return strings.Index(screen, a) - strings.Index(screen, b) })
		for _, text := range texts {
			at = strings.Index(screen, text)
			fits = fits && at >= 0
		}
		if fits {
			return
		}
		if time.Now().After(end) {
			on.t.Fatalf("not in the order %q:%s", texts, screen)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// selected is the line that is shown as selected.
func (on *terminal) selected(want string) {
	on.t.Helper()
	on.waitFor([]string{"»" + want})
}

// Rows are sorted by any column: words by the alphabet, numbers and times from the largest, and the other way round.
func TestSort(t *testing.T) {
	t.Parallel()
	p := &told{rows: map[string][]record{"Locks": {
		{"key": "beta", "db": "10", "held-ms": "9000", "owner": "x"}, {"key": "Alpha", "db": "9", "held-ms": "70000", "owner": "z"},
		{"key": "gamma", "db": "0", "held-ms": "100", "owner": "y"},
	}}}
	on := open(t, p)
	on.order("beta", "Alpha", "gamma")
	on.types("s")
	on.waitFor([]string{"LOCK ▾"})
	on.order("Alpha", "beta", "gamma")
	on.types("r")
	on.waitFor([]string{"LOCK ▴"})
	on.order("gamma", "beta", "Alpha")
	on.types("ss")
	on.waitFor([]string{"DB ▾"})
	on.order("beta", "Alpha", "gamma")
	on.types("ssss")
	on.waitFor([]string{"HELD ▾"})
	on.order("Alpha", "beta", "gamma")
	on.types("<<<")
	on.waitFor([]string{"OWNER ▾"})
	on.order("beta", "gamma", "Alpha")
	on.types("<<<<")
	on.order("beta", "Alpha", "gamma")
	on.waitFor([]string{"LOCK "}, "▾", "▴")
	on.types("<")
	on.waitFor([]string{"RENEWED ▾"})
}

// The selected row stays the same lock when others come, go, or are sorted; the lock that is opened is that one. Escape
// goes back to it.
func TestSelection(t *testing.T) {
	t.Parallel()
	lock := func(name string) record { return record{"key": name, "db": "0", "owner": "o-" + name} }
	p := &told{rows: map[string][]record{
		"Locks": {lock("a"), lock("b"), lock("c")}, "all Locks": {{"key": "far", "db": "0", "proxy": "proxy-2"}},
		"Lock":     {{"who": "holds it", "owner": "o-b", "addr": "10.0.0.9:1", "client-id": "4"}, {"who": "waits", "proxy": "elsewhere:1", "owner": "w"}, {"who": "holds it", "redisson": "r-id", "thread": "7"}},
		"all Lock": {{"who": "waits", "owner": "all of them"}},
	}, lock: "lock it: plain"}
	on := open(t, p)
	on.waitFor([]string{"o-a", "o-c"})
	on.types("j")
	on.selected("b")
	p.change(func() { p.rows["Locks"] = []record{lock("new"), lock("c"), lock("a"), lock("b"), lock("last")} })
	on.waitFor([]string{"o-new"})
	on.selected("b")
	on.types("sr")
	on.order("o-new", "o-last", "o-c", "o-b", "o-a")
	on.selected("b")
	on.types("\n")
	on.waitFor([]string{"lock it: plain", "holds it", "10.0.0.9:1", "this proxy", "elsewhere:1", "Redisson r-id, thread 7", "Esc back"}, "o-last")
	on.types("/waits\n")
	on.waitFor([]string{"elsewhere:1"}, "10.0.0.9")
	on.types("\x1b")
	on.waitFor([]string{"o-last", "LOCK ▴"}, "lock it", "only with")
	on.selected("b")
	on.types("a")
	on.waitFor([]string{"far", "PROXY", "proxy-2", "a this proxy"}, "o-last")
	on.types("\n")
	on.waitFor([]string{"all of them"})
	on.types("a")
	on.waitFor([]string{"10.0.0.9:1"}, "all of them")
	on.types("\x1b")
	on.waitFor([]string{"o-last", "a all proxies"}, "far")
	p.change(func() {
		p.rows["Events"] = []record{{"id": "7", "event": "reload", "at": "2026-11-27T10:00:00.5Z", "reason": "OK\x1b[m"}, {"id": "6", "event": "loss", "key": "b", "db": "0", "more": "1234"}}
	})
	on.types("6\n") // the first event is about no lock
	on.waitFor([]string{"reload", ":00:00", `OK\x1b[m`, "1,234 more were left out"}, "lock it", "o-last", `""`)
	on.types("j\n")
	on.waitFor([]string{"lock it"}, "reload")
	on.types("3\n") // clients are no locks
	on.waitFor([]string{"LIBRARY"}, "o-last", "lock it")
	on.types("q")
	if err := <-on.ended; err != nil {
		t.Error(err)
	}
	on.ended <- nil
}
