package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// Which nodes are in trouble is known here alone. Each node is asked several times a second whether it answers, over
// a connection that has nothing else to do. Whoever needs any node gets one that answers (Snapshot.Any), and waits
// for it only as long as it does (Snapshot.While). What needs a certain node waits for that one.

const (
	// askWellEvery is the time between an answer and the next question, before jitter.
	askWellEvery = 200 * time.Millisecond
	// wellWithin is how long a node may take to answer before it is in trouble.
	wellWithin = 300 * time.Millisecond
)

// ErrInTrouble is why a wait for one node ended: it does not answer, and another node does.
var ErrInTrouble = errors.New("the node does not answer, another one does")

// trouble is whether a node owes an answer.
type trouble struct {
	on atomic.Bool

	mu    sync.Mutex // a leaf; guards all below
	since time.Time  // when the question was sent that has no answer; zero: it is not in trouble
	well  context.Context
	ends  context.CancelFunc // of well
}

// begin notes that a question sent then has no answer.
func (t *trouble) begin(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on.Swap(true) {
		return
	}
	t.since = asked
	if t.ends != nil {
		t.ends()
	}
}

// end notes that the node has answered.
func (t *trouble) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on.Swap(false) {
		t.since, t.well, t.ends = time.Time{}, nil, nil
	}
}

// whileWell is a context that ends when trouble begins; it has ended while there is some.
func (t *trouble) whileWell() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.well == nil {
		t.well, t.ends = context.WithCancel(context.Background())
		if t.on.Load() {
			t.ends()
		}
	}
	return t.well
}

// InTrouble says that the node does not answer.
func (n *Node) InTrouble() bool { return n.trouble.on.Load() }

// Trouble says since when the node does not answer; nil: it answers.
func (n *Node) Trouble() error {
	n.trouble.mu.Lock()
	defer n.trouble.mu.Unlock()
	if n.trouble.since.IsZero() {
		return nil
	}
	return fmt.Errorf("no answer for %v", time.Since(n.trouble.since).Round(time.Millisecond))
}

// watchNode is the goroutine that asks a node whether it answers, until the node is closed.
func (c *Cluster) watchNode(n *Node) {
	defer c.running.Done()
	p := n.up.Probe()
	defer p.Close()
	for retry.Sleep(n.ctx, retry.Around(askWellEvery), nil) {
		asked := time.Now()
		late := time.AfterFunc(wellWithin, func() { n.trouble.begin(asked) })
		err := p.Ask(n.ctx)
		late.Stop()
		if err == nil {
			n.trouble.end()
		} else {
			n.trouble.begin(asked)
		}
	}
}

// Any is a node for what any node can answer, for somebody with number n who has passed over so many others: a
// master, the same for equal numbers while the topology stays and the same nodes answer. Those in trouble come last.
// After all of them comes the node that has the number, whether it answers or not.
func (s *Snapshot) Any(n, passed int) *Node {
	for _, inTrouble := range [...]bool{false, true} {
		for i := range s.Masters {
			m := s.Masters[(n+i)%len(s.Masters)]
			if m.InTrouble() != inTrouble {
				continue
			}
			if passed == 0 {
				return m
			}
			passed--
		}
	}
	return s.Masters[n%len(s.Masters)]
}

// otherWell says that a master answers that is not n.
func (s *Snapshot) otherWell(n *Node) bool {
	return slices.ContainsFunc(s.Masters, func(m *Node) bool { return m != n && !m.InTrouble() })
}

// passable says that n may be left out where any node will do: it is in trouble, and another one is not.
func (s *Snapshot) passable(n *Node) bool { return n.InTrouble() && s.otherWell(n) }

// While returns a context that ends with ctx, or, with ErrInTrouble as its cause, when n is in trouble while another
// master is not: for waits for n that another node could end. done must be called.
func (s *Snapshot) While(ctx context.Context, n *Node) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.trouble.whileWell(), func() {
		if s.otherWell(n) {
			cancel(ErrInTrouble)
		}
	})
	return ctx, func() { stop(); cancel(nil) }
}
