package history

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
)

// round is one history: fresh servers, a workload and its harms, the end of all clients, and the checks.
type round struct {
	*environment
	*history.Crew
	p     *profile
	seed  uint64
	over  atomic.Bool // no new sections
	tally tally

	worked  time.Duration
	limited map[string]int // locks with LIMIT, and the most that may hold each: known at the end
}

// tally is what a round, or many, was worth.
type tally struct {
	rounds, ops, grants, unknown, faults, keys, undecided int
	short                                                 int // NOQUORUM
	fenced, unfenced, lostUnfenced, refused               int64
	fifo                                                  int
}

func (t *tally) add(o tally) {
	t.rounds += o.rounds
	t.ops += o.ops
	t.grants += o.grants
	t.unknown += o.unknown
	t.faults += o.faults
	t.keys += o.keys
	t.undecided += o.undecided
	t.fenced += o.fenced
	t.unfenced += o.unfenced
	t.lostUnfenced += o.lostUnfenced
	t.refused += o.refused
	t.fifo += o.fifo
	t.short += o.short
}

// String is one line for the log.
func (t tally) String() string {
	text := fmt.Sprintf("%d rounds, %d calls (%d grants, %d of unknown outcome) on %d keys, %d faults", t.rounds, t.ops, t.grants, t.unknown, t.keys, t.faults)
	if t.undecided > 0 {
		text += fmt.Sprintf(", %d keys not decided by porcupine", t.undecided)
	}
	if t.fifo > 0 {
		text += fmt.Sprintf(", %d fair grants in a known order", t.fifo)
	}
	if t.short > 0 {
		text += fmt.Sprintf(", %d NOQUORUM", t.short)
	}
	if t.fenced > 0 {
		text += fmt.Sprintf(", %d fenced writes exact (%d late ones refused)", t.fenced, t.refused)
	}
	if t.unfenced > 0 {
		text += fmt.Sprintf(", %d of %d unfenced writes lost", t.lostUnfenced, t.unfenced)
	}
	return text
}

// note adds the figures of the round to the file of -figures.
func (r *round) note(violations int) {
	if *figures == "" {
		return
	}
	f := history.Round(r.p.name, r.seed, len(r.proxies), len(r.Clients), r.worked)
	f.Count(r.History(), r.Faults())
	f.Violations = violations
	if err := f.Append(*figures); err != nil {
		r.t.Error(err)
	}
}

// playRound runs one round for d and returns what it was worth and what was wrong.
func playRound(t *testing.T, p *profile, seed uint64, d time.Duration) (*round, []history.Violation) {
	proxies := p.proxies
	if proxies == 0 {
		proxies = 2 + dice(seed, 0).IntN(3)
	}
	r := &round{environment: makeEnvironment(t, p, proxies), p: p, seed: seed}
	r.Crew = &history.Crew{Recorder: history.NewRecorder(), Over: r.over.Load}
	r.Refusals = p.refusals
	if p.latency > 0 {
		for _, x := range r.proxies {
			x.wire.Latency(p.latency)
		}
	}
	if p.far {
		r.spread()
	}
	for i := range cmp.Or(p.all, p.clients*proxies) {
		c := r.NewClient(i, dice(seed, 100+i), proxies, r.reach, r.over.Load)
		c.Gap = p.gap
		r.Clients = append(r.Clients, c)
	}
	var nemeses []*nemesis
	for i := range max(1, p.nemeses) {
		nemeses = append(nemeses, r.loose(r.Recorder, dice(seed, 1+i), p.watchdog, p.pause, p.harms))
	}
	watch, look := func() {}, r.watchHolds()
	if p.strict { // the order in queues is looked at then
		watch = r.watchQueues()
	}
	if p.drive != nil {
		p.drive(r)
	} else {
		for _, c := range r.Clients {
			r.Working.Go(func() { c.Run(p.work) })
		}
	}
	began := time.Now()
	for end := began.Add(d); time.Now().Before(end) && !r.Blamed(); {
		time.Sleep(20 * time.Millisecond)
	}
	r.over.Store(true)
	for _, n := range nemeses {
		n.mend()
	}
	r.worked = time.Since(began)
	r.finish()
	watch()
	look()
	for _, c := range r.Clients {
		c.HangUp()
	}
	r.limited = history.Limited(r.History())
	r.leaks()
	return r, r.check()
}

// finish waits until every client has ended its section: all of them live, so each waiter is granted or times out. Those
// who are not are to blame on somebody, and cut off.
func (r *round) finish() {
	done := make(chan struct{})
	go func() { r.Working.Wait(); close(done) }()
	bound := 15 * time.Second
	if !r.p.strict {
		bound = 15*time.Second + 3*r.p.watchdog
	}
	select {
	case <-done:
		return
	case <-time.After(bound):
	}
	for _, o := range r.Open() {
		r.Blame(history.Violation{Oracle: "liveness", Key: o.Key(), Ops: []*history.Op{o},
			Text: fmt.Sprintf("has waited since %s, and everybody else has been done for %v", history.At(o.Call), bound)})
	}
	for _, p := range r.proxies {
		p.kill()
	}
	<-done
}
