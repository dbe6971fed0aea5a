package redisson

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const document = "../../docs/REDISSON.md"

// text is docs/REDISSON.md.
func (r *results) text() string {
	var b strings.Builder
	b.WriteString(heading)
	for _, tab := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| lock | what |", tab.title, tab.text)
		for _, version := range r.versions {
			for _, column := range tab.columns {
				fmt.Fprintf(&b, " %s |", strings.TrimSuffix(version+": "+column, ": "))
			}
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---|", len(tab.columns)*len(r.versions)) + "\n")
		for _, c := range tab.cells {
			fmt.Fprintf(&b, "| %s | %s |", c.kind, c.what)
			for _, version := range r.versions {
				for _, column := range tab.columns {
					b.WriteString(" " + r.cell[slot(tab, c, version, column)] + " |")
				}
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(limits)
	r.figures(&b, "How soon they woke", waking, func(e *env) map[string]string {
		out := map[string]string{}
		for what, took := range e.wakes.what {
			out[what] = summary(took).String()
		}
		return out
	})
	r.figures(&b, "Turns and ghosts", waiting, func(e *env) map[string]string { return e.wakes.figures })
	return b.String()
}

// figures writes a table with a line for each name, and what of tells of it in each version.
func (r *results) figures(b *strings.Builder, title, text string, of func(*env) map[string]string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| what | %s |\n|---|%s\n", title, text,
		strings.Join(r.versions, " | "), strings.Repeat("---|", len(r.versions)))
	names := map[string]bool{}
	for _, e := range r.envs {
		for name := range of(e) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(b, "| %s |", name)
		for _, e := range r.envs {
			figure, found := of(e)[name]
			if !found {
				figure = "–"
			}
			fmt.Fprintf(b, " %s |", figure)
		}
		b.WriteString("\n")
	}
}

const heading = `# Redisson and lockproxy

<!-- Written by: go test ./integration/redisson -run Interop -write -->

Both sides keep the same locks in the same Redis. Each line below is a test of ` + "`make interop`" + ` with the real Redisson, the
newest we could get and the oldest with the same bytes, beside two lockproxies. 4.8.0, of 2 October 2026, was in no Maven
repository we could reach; ` + "`-args -versions 4.8.0,3.15.0`" + ` tries it.

✓: it passed. –: that Redisson has not got it. "needs …": lockproxy has not got that verb yet. Empty: the line is not about
this column.

Whoever is woken is woken by a message, but for spin locks, which nobody tells: leases end in 60 s, and lockproxy's own look at
the lock (` + "`--wait-poll`" + `) is set to 10 s. In each test the best quarter of several must have the lock within 100 ms of the call that
gives it up, and all within two seconds. What they took is at the end.
`

const limits = `
## What Redisson does not do

With these nothing is lost, and nobody holds what is another's; somebody waits for longer than need be.

* Redisson's RLock takes a free lock although somebody waits in its fair queue. LOCK and FAIRLOCK do not.
* When Redisson unlocks a fair lock in whose queue nobody stands, it tells nobody. A waiting LOCK, or a waiting RLock, sees that
  at its next look: LOCK after ` + "`wait-poll`" + ` at the latest, RLock when the lease it saw is over. FAIRLOCK stands in the queue.
* A spin lock of Redisson publishes nothing: waiters of its name see it free at their next look.
* A thread of Redisson that dies in the queue counts as alive for its ` + "`fairLockWaitTimeout`" + `, five minutes; until then those behind
  it wait, lockproxy's too. A lockproxy that dies is over after 10 s, for all who look with lockproxy's scripts. To a thread of
  Redisson, with nobody of lockproxy in the queue, its waiters are over when their scores say so (10 s, and five minutes more for
  each thread of Redisson that stood before them and gave up instead of being served), and it looks when the lease that it saw
  is over.
* tryLock(10, SECONDS) of a fair lock, without a lease, takes the ten for milliseconds in the queue. Its place runs out with the
  one before it, after 10 s behind a waiter of lockproxy; then it comes back at the end.
* When who stands first gives up, or the lock's lease ends, Redisson tells nobody: its own threads look when the lease that they saw
  is over, lockproxy's proxies within 3 s, and tell whose turn it is.
* A thread of Redisson whose turn it is not looks again and again, without a pause, while the lock is free.
* A downgrade by Redisson wakes no reader.
* Before 3.32 a thread in a fair queue whose turn is overdue waits without end for a message that nobody sends. With somebody of
  lockproxy in the queue it gets one within 3 s. That is how the lines above about leases and ghosts are tried with 3.15.0.
`

const waking = `From the call that gives the lock up to the waiter's answer, through a pipe to the JVM: median, longest (how many).
Measured beside other tests, four at a time, on two cores.`

const waiting = `Turns: how long a thread of Redisson waited for a lock that the clients of one lockproxy hand on among themselves. Ghosts: from the
kill to the next grant.`

// The document has the lines of the tables: a new cell wants -write.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	must(t, err, "reading the document")
	for _, tab := range tables {
		_, section, found := strings.Cut(string(text), "\n## "+tab.title+"\n")
		if !found {
			t.Errorf("%s has no %q; run make interop's test with -write", document, tab.title)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, c := range tab.cells {
			if !strings.Contains(section, fmt.Sprintf("\n| %s | %s |", c.kind, c.what)) {
				t.Errorf("%s lacks %s: %s; run make interop's test with -write", document, c.kind, c.what)
			}
		}
	}
}
