package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// mover moves slots from node to node, there and back, until it is stopped.
type mover struct {
	tc    *testredis.Cluster
	slots []int
	stop  chan struct{}
	done  chan struct{}
	moves atomic.Int64
	err   error // read after done
}

func startMover(t *testing.T, tc *testredis.Cluster, slots []int) *mover {
	m := &mover{tc: tc, slots: slots, stop: make(chan struct{}), done: make(chan struct{})}
	go m.run()
	t.Cleanup(m.end)
	return m
}

func (m *mover) run() {
	defer close(m.done)
	for turn := 0; ; turn++ {
		for _, slot := range m.slots {
			select {
			case <-m.stop:
				return
			default:
			}
			from, err := m.tc.Owner(slot)
			if err == nil && from != nil {
				to := m.tc.Servers[turn%3]
				if from == to {
					continue
				}
				err = m.move(slot, from, to)
			}
			if err != nil {
				m.err = err
				return
			}
			m.moves.Add(1)
		}
	}
}

// move takes its time between the keys, so that many commands meet a slot in two halves.
func (m *mover) move(slot int, from, to *testredis.Server) error {
	if err := m.tc.BeginMove(slot, from, to); err != nil {
		return err
	}
	for {
		n, err := m.tc.MoveKeys(slot, from, to, 1)
		if err != nil {
			return err
		}
		if n == 0 {
			return m.tc.EndMove(slot, from, to)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (m *mover) end() {
	select {
	case <-m.stop:
	default:
		close(m.stop)
	}
	<-m.done
}

// The load knows every reply beforehand, since its keys are its own.
type load struct {
	name string
	tags []string // one a slot
	n    int
}

// pipeline is some commands, and the replies they must get.
func (l *load) pipeline() (lines, want []string) {
	l.n++
	v := fmt.Sprint(l.n)
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	for _, tag := range l.tags {
		k := "{" + tag + "}" + l.name
		lines = append(lines, "INCR "+k+"n", "RPUSH "+k+"l "+v+"a", "MSET "+k+"x "+v+" "+k+"y "+v, "GET "+k+"x", "RPUSH "+k+"l "+v+"b", "INCR "+k+"n",
			"SET "+k+"z "+v, "MGET "+k+"x "+k+"y "+k+"z", "LINDEX "+k+"l -1", "SET "+k+"y old", "GETDEL "+k+"y",
			"EVAL "+"return{redis.call('incr',KEYS[1]),ARGV[1]}"+" 1 "+k+"n "+v)
		want = append(want, fmt.Sprintf(":%d\r\n", 3*l.n-2), fmt.Sprintf(":%d\r\n", 2*l.n-1), "+OK\r\n", bulk(v), fmt.Sprintf(":%d\r\n", 2*l.n), fmt.Sprintf(":%d\r\n", 3*l.n-1),
			"+OK\r\n", "*3\r\n"+bulk(v)+bulk(v)+bulk(v), bulk(v+"b"), "+OK\r\n", bulk("old"),
			fmt.Sprintf("*2\r\n:%d\r\n%s", 3*l.n, bulk(v)))
	}
	var mset, mget strings.Builder // over all slots
	got := fmt.Sprintf("*%d\r\n", len(l.tags))
	for _, tag := range l.tags {
		fmt.Fprintf(&mset, " {%s}%sm %s", tag, l.name, v)
		fmt.Fprintf(&mget, " {%s}%sm", tag, l.name)
		got += bulk(v)
	}
	lines = append(lines, "MSET"+mset.String(), "MGET"+mget.String())
	want = append(want, "+OK\r\n", got)
	return lines, want
}

func (l *load) run(cl *client) error {
	lines, want := l.pipeline()
	plans := make([]*Plan, len(lines))
	for i, line := range lines {
		plans[i] = NewPlan(cl.table.command(strings.Fields(line)...))
	}
	cl.e.Do(context.Background(), plans)
	for i, p := range plans {
		if p.Err != nil || string(p.Reply) != want[i] {
			return fmt.Errorf("pipeline %d: %s: got %q, %v, want %q", l.n, lines[i], p.Reply, p.Err, want[i])
		}
	}
	return nil
}

func TestReshardUnderLoad(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{RetryFor: 20 * time.Second})
	all := learn(t, c)
	tags := []string{"a", "b", "c", "d", "e"}
	var slots []int
	for _, tag := range tags {
		slots = append(slots, Slot([]byte(tag)))
	}
	m := startMover(t, tc, slots)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	pipelines := 0
	over := time.Now().Add(4 * time.Minute)
	enough := func() bool {
		s := c.Stats()
		return m.moves.Load() >= 40 && s.Moved >= 20 && s.Asked >= 10 && s.TriedAgain >= 10 || time.Now().After(over)
	}
	for i := range 4 {
		cl := newClient(t, c, all, 2+i%2)
		l := &load{name: fmt.Sprint("c", i), tags: tags}
		wg.Go(func() {
			for l.n < 15 || !enough() {
				if err := l.run(cl); err != nil {
					mu.Lock()
					faults = append(faults, err)
					mu.Unlock()
					return
				}
			}
			mu.Lock()
			pipelines += l.n
			mu.Unlock()
		})
	}
	wg.Wait()
	m.end()
	s := c.Stats()
	t.Logf("%d slots moved, %d pipelines of %d commands; %+v", m.moves.Load(), pipelines, 12*len(tags)+2, s)
	if err := errors.Join(append(faults, m.err)...); err != nil {
		t.Fatal(err)
	}
	if time.Now().After(over) {
		t.Fatal("too little was redirected: the test shows nothing")
	}
}
