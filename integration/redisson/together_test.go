package redisson

import (
	"fmt"
	"testing"
	"time"
)

func togetherCells() (cells []cell) {
	for _, kind := range []string{"plain", "fenced", "fair", "write", "read/write", "multi"} {
		cells = append(cells, cell{kind: kind, what: "two JVMs and four lockproxies count up: exact", run: counts})
	}
	for _, kind := range []string{"plain", "write"} {
		cells = append(cells, cell{kind: kind, what: "a thread of Redisson among a hundred clients of one lockproxy has its turn", run: turns, slow: true})
	}
	return append(cells,
		cell{kind: "fair", what: "a hundred waiters of all are served in the order they came", run: hundred, slow: true},
		cell{kind: "fair", what: "kill -9 of a lockproxy with twenty in the queue: those behind them wait for seconds", run: ghosts, slow: true},
		cell{kind: "plain", what: "deleted without a message it wakes nobody in time, so that \"wakes\" above means a message", run: silent},
		cell{kind: "plain", what: "kill -9 of a JVM that holds and waits: its lock lives one lease", run: javaDies, slow: true},
		cell{kind: "plain", what: "kill -9 of a lockproxy that holds and waits: its lock lives one lease", run: proxyDies},
		cell{kind: "limit 1", what: "kill -9 of a lockproxy that holds and waits: its place lives one lease", run: proxyDies},
		cell{kind: "limit 5", what: "at most five of all hold it, while clients, a lockproxy and a JVM are killed; then five places are there", run: fiveHold, slow: true},
	)
}

// silent: without a message nobody is woken, and with one both sides are.
func silent(t *testing.T, e *env, _, _ string) {
	for range 3 {
		for _, who := range []string{ours, beside} {
			for _, verb := range e.messages(who) {
				l, holder, waiter := e.lock("plain"), e.party(t, beside), e.party(t, who)
				channel := prefixed("redisson_lock__channel", l.name)
				hold(t, holder, l, long)
				got := start(func() error { _, err := waiter.lock(l, long); return err })
				e.queued(t, l, 1)
				e.server(t, l.name).Do(t, "DEL", l.name)
				time.Sleep(time.Second)
				if !got.waiting() {
					t.Errorf("%s was woken by nothing", who)
				}
				published := time.Now()
				e.server(t, channel).Do(t, verb, channel, "0")
				e.woke(t, who+": a message alone, "+verb, got.ok(t, who).Sub(published))
				free(t, waiter, l)
			}
		}
	}
}

// messages are the ways in which who waits hears: on a cluster by SPUBLISH, but an old Redisson by PUBLISH, and a lockproxy that is to work with
// it by both.
func (e *env) messages(who string) []string {
	old := e.version == oldest
	switch {
	case e.cluster == nil || who == beside && old:
		return []string{"PUBLISH"}
	case old:
		return []string{"PUBLISH", "SPUBLISH"}
	}
	return []string{"SPUBLISH"}
}

// dies: the locks of a process that was killed live for a lease at most, both sides' waiters get them, and what the dead
// waited for is nobody's.
func (e *env) dies(t *testing.T, kind string, dead func() side, kill func()) {
	var held []lock
	var got []later
	for _, who := range []string{ours, beside} {
		l, waiter := e.lock(kind), e.party(t, who)
		hold(t, dead(), l, 0)
		got = append(got, start(func() error { _, err := waiter.lock(l, long); return err }))
		e.queued(t, l, 1)
		held = append(held, l)
	}
	wanted, holder, ghost := e.lock(kind), e.party(t, ours), dead()
	hold(t, holder, wanted, long)
	lost := start(func() error { _, err := ghost.lock(wanted, long); return err })
	e.queued(t, wanted, 1)
	time.Sleep(watchdog * 3 / 2) // all are renewed by now
	for i := range held {
		if !got[i].waiting() {
			t.Fatalf("%v is lost before its holder dies", held[i])
		}
	}
	killed := time.Now()
	kill()
	if r := <-lost.done; r.err == nil {
		t.Error("the dead got a lock")
	}
	for i, l := range held {
		took := got[i].ok(t, "a waiter").Sub(killed)
		if took > watchdog+poll/2 {
			t.Errorf("%v outlived its holder by %v", l, took)
		}
		t.Logf("%v outlived its holder by %v", l, took.Round(time.Millisecond))
	}
	free(t, holder, wanted)
	other := e.party(t, beside)
	tries(t, other, wanted, true)
	free(t, other, wanted)
}

func javaDies(t *testing.T, e *env, _, kind string) {
	e.second.Lock()
	defer e.second.Unlock()
	j := e.jvm(t)
	n := 0
	e.dies(t, kind, func() side { n++; return &thread{j, beside, fmt.Sprint("t", n)} }, j.kill)
}

func proxyDies(t *testing.T, e *env, _, kind string) {
	p := e.proxy(t)
	e.dies(t, kind, func() side { return dial(t, p.Addr()) }, p.Kill)
}
