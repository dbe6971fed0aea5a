package session_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/session"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// story is one client that writes x under l, over and over in one pipeline, and one that looks at x under l.
type story struct {
	t                testing.TB
	n                int
	rounds, sets     int          // SETs before each UNLOCK
	writer, reader   *client      // may be of different proxies
	redis            past         // how the reader reads x
	granted          atomic.Int64 // the last value whose UNLOCK was answered
	looks, fresh     int          // how often the reader held the lock, and found a new value
	finished, broken atomic.Bool
}

func (s *story) fail(format string, args ...any) {
	s.broken.Store(true)
	s.t.Errorf("key %d: "+format, append([]any{s.n}, args...)...)
}

// pipeline sends all rounds as fast as the connection takes them.
func (s *story) pipeline() {
	value := 0
	for range s.rounds {
		_ = s.writer.Send("LOCK", fmt.Sprint("l", s.n), "BLOCK", 0)
		for range s.sets {
			value++
			_ = s.writer.Send("SET", fmt.Sprint("x", s.n), value)
		}
		if s.writer.Send("UNLOCK", fmt.Sprint("l", s.n)) != nil || s.writer.Flush() != nil {
			s.fail("the pipeline broke")
			return
		}
	}
}

func (s *story) replies() {
	defer s.finished.Store(true)
	for r := range s.rounds {
		for i := range s.sets + 2 {
			want := "OK"
			if i == s.sets+1 {
				want = ":1"
			}
			if got := s.writer.hear(); got != want {
				s.fail("round %d reply %d: %q, want %q", r, i, got, want)
				return
			}
		}
		s.granted.Store(int64((r + 1) * s.sets))
	}
}

// look takes the lock and reads x past every proxy: it must be what the last holder left, and stay so.
func (s *story) look() {
	last := int64(-1)
	for !s.finished.Load() && !s.broken.Load() {
		if got := s.reader.ask(fmt.Sprintf("LOCK l%d BLOCK 0", s.n)); got != "OK" {
			s.fail("LOCK: %q", got)
			return
		}
		atLeast := s.granted.Load()
		first := s.redis.ask(fmt.Sprint("GET x", s.n))
		time.Sleep(time.Millisecond)
		second := s.redis.ask(fmt.Sprint("GET x", s.n))
		if got := s.reader.ask(fmt.Sprintf("UNLOCK l%d", s.n)); got != ":1" {
			s.fail("UNLOCK: %q", got)
			return
		}
		value, _ := strconv.ParseInt(first, 10, 64) // nil before the first round: 0
		if value < atLeast || value%int64(s.sets) != 0 || first != second {
			s.fail("read %s, then %s under the lock; granted before: %d, a holder leaves multiples of %d", first, second, atLeast, s.sets)
			return
		}
		s.looks++
		if value != last {
			s.fresh++
		}
		last = value
	}
}

// A lock is given back only when every write sent before the UNLOCK is known to be done, whatever the data wire does.
func TestNoUnlockOvertakesTheWritesBeforeIt(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	slow := testredis.NewProxy(t, server.Addr())
	here := twoWires(t, slow.Addr(), server.Addr(), lock.ManagerOptions{})
	there := twoWires(t, server.Addr(), server.Addr(), lock.ManagerOptions{})
	const delay = 20 * time.Millisecond
	slow.Latency(delay)

	// SETs by few clients with many before each UNLOCK, and many clients with one before each.
	few, rounds, pairs, pairRounds := 4, 20, 30, 60
	if os.Getenv("TESTS_LONG") != "" {
		few, rounds, pairs, pairRounds = 4, 50, 60, 150
	}
	var stories []*story
	for range few {
		stories = append(stories, &story{rounds: rounds, sets: 500})
	}
	for range pairs {
		stories = append(stories, &story{rounds: pairRounds, sets: 1})
	}
	began := time.Now()
	var all sync.WaitGroup
	for i, s := range stories {
		s.t, s.n, s.redis = t, i, around(t, server)
		s.writer = connect(t, here)
		s.reader = connect(t, []string{here, there}[i%2])
		all.Go(s.pipeline)
		all.Go(s.replies)
		all.Go(s.look)
	}
	all.Wait()
	sets, unlocks, looks, fresh := 0, 0, 0, 0
	for _, s := range stories {
		sets, unlocks = sets+s.rounds*s.sets, unlocks+s.rounds
		looks, fresh = looks+s.looks, fresh+s.fresh
	}
	t.Logf("%d SETs and %d UNLOCKs by %d clients in %v, the data wire delayed by %v each way; %d looks under the lock found %d new values, none of them old",
		sets, unlocks, len(stories), time.Since(began).Round(time.Millisecond), delay, looks, fresh)
	if !t.Failed() && fresh < unlocks/10 { // how often each reader gets a turn is the machine's affair
		t.Errorf("the readers saw %d values in %d rounds: the test is weak", fresh, unlocks)
	}
}

// departure is a client that is cut off with writes on their way, and one that waits for its lock.
type departure struct {
	n             int
	holder, next  *client
	addr          string // the holder's
	commands      []string
	want          string // what the next holder finds if all the commands were sent in time; "" = whatever
	gone, granted time.Time
	found, later  string
}

// A lock whose holder was cut off is given to nobody before the outcome of the holder's last writes is known.
func TestResetWithWritesInFlight(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	slow := testredis.NewProxy(t, server.Addr())
	here, srv := serveTwoWires(t, slow.Addr(), server.Addr(), lock.ManagerOptions{})
	there := twoWires(t, server.Addr(), server.Addr(), lock.ManagerOptions{})
	redis := around(t, server)

	big := fmt.Sprintf("%080000d", 7)
	all := make([]*departure, 100)
	for i := range all {
		d := &departure{n: i, holder: connect(t, here), next: connect(t, []string{here, there}[i%2]), want: "new"}
		x, l := fmt.Sprint("x", i), fmt.Sprint("l", i)
		switch i / 2 % 5 {
		case 0:
			d.commands = []string{"SET " + x + " new"}
		case 1:
			d.commands, d.want = []string{"SET " + x + " " + big}, big
		case 2:
			d.commands = []string{"SET " + x + " new", "UNLOCK " + l}
		case 3:
			d.commands = []string{"SET " + x + " mid", "GET " + x, "LOCK " + l, "SET " + x + " new"}
		case 4:
			d.want = ""
			for k := range 300 {
				d.commands = append(d.commands, fmt.Sprint("SET ", x, " ", k))
			}
		}
		redis.ask("SET " + x + " old")
		if got := d.holder.ask("LOCK "+l) + d.holder.ask(lastBefore+" "+x+" 0 -1"); got != "OKold" {
			t.Fatal(got)
		}
		all[i] = d
	}
	slow.Latency(time.Hour)
	var work, gone sync.WaitGroup
	gone.Add(len(all))
	for _, d := range all {
		if err := d.next.say(fmt.Sprintf("LOCK l%d BLOCK 0", d.n)); err != nil {
			t.Fatal(err)
		}
		work.Go(func() { d.live(t, srv, redis, &gone) })
	}
	gone.Wait()
	slow.Clear() // the writes arrive
	work.Wait()
	for _, d := range all { // a session ends when its commands have been answered
		waitFor(t, "the session ends", func() bool { _, there := srv.LastCommand(d.addr); return !there })
	}
	if got := connect(t, here).ask("GET x0"); got != all[0].found { // behind everything that was sent
		t.Errorf("key 0: %.20q through the slow wire, the next holder found %.20q", got, all[0].found)
	}
	soonest, last, sent := time.Hour, time.Duration(0), 0
	for _, d := range all {
		if d.later = redis.ask(fmt.Sprint("GET x", d.n)); d.found != d.later {
			t.Errorf("key %d, %.60q: the next holder found %.20q, later there was %.20q", d.n, d.commands, d.found, d.later)
		}
		// A command that was read but not sent yet when the client went is never sent.
		if d.want == "" || d.found == d.want {
			sent++
		}
		soonest, last = min(soonest, d.granted.Sub(d.gone)), max(last, d.granted.Sub(d.gone))
	}
	t.Logf("%d holders reset, %d with all their writes in flight: the next ones had the locks %v to %v afterwards", len(all), sent, soonest, last)
	if !t.Failed() && sent < len(all)/2 {
		t.Errorf("only %d of %d had their writes in flight: the test is weak", sent, len(all))
	}
}

// lastBefore is the command of every holder ahead of those that are in flight when it is cut off.
const lastBefore = "getrange"

func (d *departure) live(t *testing.T, srv *session.Server, redis past, gone *sync.WaitGroup) {
	d.addr = d.holder.tcp.LocalAddr().String()
	if err := d.holder.say(d.commands...); err != nil {
		t.Errorf("key %d: %v", d.n, err)
	}
	waitFor(t, "the proxy has read them", func() bool { name, _ := srv.LastCommand(d.addr); return name != lastBefore })
	d.holder.reset()
	d.gone = time.Now()
	gone.Done()
	got := d.next.hear()
	d.granted = time.Now()
	d.found = redis.ask(fmt.Sprint("GET x", d.n))
	if got != "OK" {
		t.Errorf("key %d: the next holder got %q", d.n, got)
	}
}

// waitFor waits until it is so, and says so if it never is.
func waitFor(t testing.TB, what string, so func() bool) {
	for end := time.Now().Add(longEnough); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("not in time:", what)
			return
		}
	}
}
