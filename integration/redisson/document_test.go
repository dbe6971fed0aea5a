package redisson

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const document = "../../docs/REDISSON.md"

// write rewrites the document with a new part about this place. The others stay as they were.
func (r *results) write(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(document)
	must(t, err, "reading the document")
	text := heading
	for _, p := range places {
		part := r.text()
		if p.name != r.where {
			_, part, _ = strings.Cut(string(old), begins(p.name))
			part, _, _ = strings.Cut(part, ends(p.name))
		}
		text += "\n" + begins(p.name) + part + ends(p.name)
	}
	must(t, os.WriteFile(document, []byte(text+limits), 0o644), "writing the document")
}

func begins(where string) string { return "<!-- " + where + " -->\n" }
func ends(where string) string   { return "<!-- end of " + where + " -->\n" }

// text is the document's part about this place.
func (r *results) text() string {
	var b strings.Builder
	title := ""
	for _, tab := range tablesOf(r.where) {
		r.table(&b, tab)
		_, title, _ = strings.Cut(tab.title, "its server")
	}
	r.figures(&b, "How soon they woke"+title, waking, func(e *env) map[string]string {
		out := map[string]string{}
		for what, took := range e.wakes.what {
			out[what] = summary(took).String()
		}
		return out
	})
	r.figures(&b, "How soon they woke"+title+", with all locks", pooled, (*env).pooled)
	if r.where != sentinels {
		r.figures(&b, "Turns and ghosts"+title, waiting, func(e *env) map[string]string { return e.wakes.figures })
	}
	return b.String()
}

// table writes what came out in one place.
func (r *results) table(b *strings.Builder, tab table) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| lock | what |", tab.title, tab.text)
	for _, e := range r.envs {
		for _, column := range tab.columns {
			fmt.Fprintf(b, " %s |", strings.TrimSuffix(e.version+": "+column, ": "))
		}
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(tab.columns)*len(r.envs)) + "\n")
	for _, c := range tab.cells {
		fmt.Fprintf(b, "| %s | %s |", c.kind, c.what)
		for _, e := range r.envs {
			for _, column := range tab.columns {
				b.WriteString(" " + r.cell[slot(tab, c, e.version, column)] + " |")
			}
		}
		b.WriteString("\n")
	}
}

// figures writes a table with a line for each name, and what of tells of it in each version.
func (r *results) figures(b *strings.Builder, title, text string, of func(*env) map[string]string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| what |", title, text)
	names, all := map[string]bool{}, make([]map[string]string, len(r.envs))
	for i, e := range r.envs {
		fmt.Fprintf(b, " %s |", e.version)
		all[i] = of(e)
		for name := range all[i] {
			names[name] = true
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(b, "| %s |", name)
		for _, figures := range all {
			figure, found := figures[name]
			if !found {
				figure = "–"
			}
			fmt.Fprintf(b, " %s |", figure)
		}
		b.WriteString("\n")
	}
}

// pooled is how soon each party of a pair woke the other, with all locks.
func (e *env) pooled() map[string]string {
	took := map[string][]time.Duration{}
	for what, all := range e.wakes.what {
		if pair, _, _ := strings.Cut(what, ":"); pair == theyFirst || pair == weFirst || pair == bothJava {
			took[pair] = append(took[pair], all...)
		}
	}
	out := map[string]string{}
	for pair, all := range took {
		out[pair] = summary(all).String()
	}
	return out
}

const heading = `# Redisson and lockproxy

<!-- Written by: go test ./integration/redisson -run Interop -args -write -->

Both sides keep the same locks in the same Redis. Each line below is a test of ` + "`make interop`" + ` with the real Redisson, the
newest known and the oldest with the same bytes, beside two lockproxies: on one Redis, on a cluster, and on the master
that Sentinels name. ` + "`-args -versions 4.8.0,3.15.0`" + ` tries others.

✓: it passed. –: that Redisson has not got it. "needs …": lockproxy has not got that verb yet. Empty: the line is not about
this column.

Whoever is woken is woken by a message, but for spin locks, which nobody tells: leases end in 60 s, and lockproxy's own look at
the lock (` + "`--wait-poll`" + `) is set to 10 s. In each test the best quarter of several must have the lock within 100 ms of the call that
gives it up, and all within four seconds (the 100 ms are more on a machine with more to do than processors). What they took is behind each part.
`

const limits = `
## What Redisson does not do

With these nothing is lost, and nobody holds what is another's; somebody waits for longer than need be.

* Redisson's RLock takes a free lock although somebody waits in its fair queue. LOCK and FAIRLOCK do not.
* When Redisson unlocks a fair lock in whose queue nobody stands, it tells nobody. A waiting LOCK, or a waiting RLock, sees that
  at its next look: LOCK after ` + "`wait-poll`" + ` at the latest, RLock when the lease it saw is over. FAIRLOCK stands in the queue.
* Locks ` + "`" + `a` + "`" + ` and ` + "`" + `{a}` + "`" + ` share the name of a fair queue: a thread that waits in Redisson's RFairLock ` + "`" + `{a}` + "`" + ` keeps its lock ` + "`" + `a` + "`" + ` from everybody
  until that thread is served or gives up. lockproxy refuses ` + "`" + `FAIRLOCK {a}` + "`" + `, and ` + "`" + `LOCK {a}` + "`" + ` takes no heed of the queue. They also share the
  fencing token's key, where tokens of both rise, and the channel, where a message of the one has the waiters of the other look in vain.
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
* When a write lock is given back, Redisson wakes those of its threads that already wait for the message. One that has just seen the
  lock held, and is about to wait, misses it, and looks when the lease that it saw is over. On a machine with too much to do this was
  seen twice in a run of the whole matrix with eight waiters each, once among threads of Redisson alone. lockproxy's waiters subscribe first and then look.
* When a slot of a cluster moves, threads of Redisson 4.7.0 that wait for its locks hear no more messages: tried by resharding a slot
  to and fro, they looked when the lease that they saw was over, whoever unlocked. 3.15.0, which hears classic messages, was told.
  lockproxy's waiters are told.
* Before 3.32 a thread in a fair queue whose turn is overdue waits without end for a message that nobody sends. With somebody of
  lockproxy in the queue it gets one within 3 s. That is how the lines above about leases and ghosts are tried with 3.15.0.
`

const waking = `From the call that gives the lock up to the waiter's answer, through a pipe to the JVM: median, longest (how many).
Measured beside other tests, four at a time, on two cores.`

const pooled = `The lines above of each pair in one. In a pair the first wakes the second.`

const clusterText = ` Three masters and three replicas. Redisson is
there with useClusterServers: 4.7.0 tells and hears by sharded messages (SPUBLISH), 3.15.0 by classic ones (PUBLISH); lockproxy,
with redis-cluster://, by both. Redisson through lockproxy is in cluster mode, too: --present cluster.`

const sentinelText = ` A master, two replicas and three Sentinels.
Redisson is there with useSentinelServers, lockproxy with redis+sentinel://. Here only what is quick is tried.`

const waiting = `Turns: how long a thread of Redisson waited for a lock that the clients of one lockproxy hand on among themselves. Ghosts: from the
kill to the next grant.`

// The document has the lines of the tables: a new cell wants -write.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	must(t, err, "reading the document")
	var all []table
	for _, p := range places {
		if strings.Contains(string(text), begins(p.name)+ends(p.name)) {
			t.Logf("%s has nothing about %s yet; run make interop's test with -write", document, p.name)
			continue
		}
		all = append(all, tablesOf(p.name)...)
	}
	for _, tab := range all {
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
