package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// slotTable is the table of one slot at a node that scans by slot: very many buckets, of which few have a key.
type slotTable struct {
	bits int
	keys map[uint64]string // by their places in the order of the scan
}

// bySlotNode is a node that scans as a Redis from 7.4 on does.
type bySlotNode struct {
	id       string
	from, to int // its slots; others that it has tables of are coming to it
	epoch    int
	tables   map[int]slotTable
}

// visits is how many buckets one step looks at. An odd number makes for cursors that are large, since the places in them are written backwards.
const visits = 1<<21 + 1

// scan is one step.
func (n *bySlotNode) scan(cursor uint64) (next uint64, keys []string) {
	slot, place := int(cursor%Slots), cursor>>slotBits
	if t, there := n.tables[slot]; there {
		reversed := bits.Reverse64(place) >> (64 - t.bits)
		until := min(reversed+visits, 1<<t.bits)
		for at, key := range t.keys {
			if at >= reversed && at < until {
				keys = append(keys, key)
			}
		}
		if until < 1<<t.bits {
			return bits.Reverse64(until)>>(64-t.bits)<<slotBits | uint64(slot), keys
		}
	}
	for slot++; slot < Slots; slot++ {
		if _, there := n.tables[slot]; there {
			return uint64(slot), keys
		}
	}
	return 0, keys
}

// fill gives the node a slot of 2^size buckets, with so many keys all over it.
func (n *bySlotNode) fill(slot, size, keys int) {
	t := slotTable{bits: size, keys: map[uint64]string{}}
	tag := keyIn(slot)
	for i := range keys {
		t.keys[uint64(i)*(1<<size-1)/uint64(max(keys-1, 1))] = fmt.Sprintf("{%s}%s%d", tag, n.id, i)
	}
	n.tables[slot] = t
}

// bySlotCluster is a cluster of such nodes, which the first one describes.
type bySlotCluster struct {
	ports []int

	mu    sync.Mutex // guards all below, once it is used
	nodes []*bySlotNode
	epoch int // the highest
}

// startBySlot starts so many of them, which share the slots evenly.
func startBySlot(t *testing.T, count int) *bySlotCluster {
	t.Helper()
	all := &bySlotCluster{epoch: count}
	for i := range count {
		n := &bySlotNode{id: string(rune('a' + i)), from: Slots * i / count, to: Slots*(i+1)/count - 1, epoch: i + 1, tables: map[int]slotTable{}}
		all.nodes = append(all.nodes, n)
	}
	for _, n := range all.nodes {
		port, _ := fakeServer(t, func(_ int, line string) string { return all.answer(n, line) })
		all.ports = append(all.ports, port)
	}
	return all
}

func (all *bySlotCluster) answer(n *bySlotNode, line string) string {
	all.mu.Lock()
	defer all.mu.Unlock()
	words := strings.Fields(line)
	switch {
	case line == "CLUSTER SLOTS":
		out := resp.AppendArray(nil, len(all.nodes))
		for i, n := range all.nodes {
			out = append(out, fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\n%s\r\n", n.from, n.to, all.ports[i], n.id)...)
		}
		return string(out)
	case line == "CLUSTER NODES":
		var text strings.Builder
		for _, m := range all.nodes {
			fmt.Fprintf(&text, "%s 127.0.0.1:1@2 %smaster - 0 0 %d connected %d-%d\n", m.id, map[bool]string{m == n: "myself,"}[true], m.epoch, m.from, m.to)
		}
		return string(resp.AppendBulkString(nil, text.String()))
	case words[0] == "SCAN":
		cursor, _ := strconv.ParseUint(words[1], 10, 64)
		next, keys := n.scan(cursor)
		out := resp.AppendBulkString(resp.AppendArray(nil, 2), strconv.FormatUint(next, 10))
		out = resp.AppendArray(out, len(keys))
		for _, key := range keys {
			out = resp.AppendBulkString(out, key)
		}
		return string(out)
	case words[0] == "PING":
		return "+PONG\r\n"
	}
	return "-ERR unknown\r\n"
}

// scanBySlot scans a whole cluster, and returns how often each key came. step is called, unless it is nil, with the cursor of each step.
func scanBySlot(t *testing.T, c *Cluster, step func(cursor uint64)) map[string]int {
	t.Helper()
	e := newClient(t, c, nil, 2).e
	facts, came := FactsOf("scan", []string{"readonly"}, nil), map[string]int{}
	for cursor, steps := "0", 0; ; steps++ {
		words := [][]byte{[]byte("SCAN"), []byte(cursor)}
		p := NewPlan(Command{Raw: resp.Command(words), Args: words, Facts: facts})
		e.Do(context.Background(), []*Plan{p})
		v, ok := resp.ParseReply(p.Reply)
		if p.Err != nil || !ok || len(v.Elems) != 2 || steps > 10000 {
			t.Fatalf("step %d, of %s: got %q, %v", steps, cursor, p.Reply, p.Err)
		}
		for _, k := range v.Elems[1].Elems {
			came[string(k.Text)]++
		}
		if cursor = string(v.Elems[0].Text); cursor == "0" {
			return came
		}
		n, err := strconv.ParseUint(cursor, 10, 63)
		if err != nil {
			t.Fatal(err)
		}
		if step != nil {
			step(n)
		}
	}
}

// complete checks that each key has come that its owner has.
func (all *bySlotCluster) complete(t *testing.T, came map[string]int, once bool) {
	t.Helper()
	for _, n := range all.nodes {
		for slot, table := range n.tables {
			for _, key := range table.keys {
				if came[key] == 0 && slot >= n.from && slot <= n.to || once && came[key] > 1 {
					t.Errorf("%s of slot %d came %d times", key, slot, came[key])
				}
			}
		}
	}
}

// Slots with more than 2^20 keys are scanned as any others, each key once while nothing changes, also if such a slot is coming to a node
// that has not got it yet.
func TestScanOfLargeSlots(t *testing.T) {
	t.Parallel()
	all := startBySlot(t, 3)
	for i, n := range all.nodes {
		n.fill(n.from, 24, 40)
		n.fill(n.from+1, 2, 4)
		n.fill(n.from+700, 26, 40)
		n.fill(n.to, 21+i, 40)
	}
	all.nodes[1].fill(3, 24, 40)       // these are the first node's
	all.nodes[1].fill(Slots-7, 24, 40) // and these the last one's
	all.nodes[1].tables[4] = slotTable{bits: 23}
	c := openFake(t, all.ports[0], Options{Refresh: time.Hour})
	over := 0
	came := scanBySlot(t, c, func(cursor uint64) {
		if cursor >= 1<<53 {
			over++
		}
	})
	all.complete(t, came, true)
	t.Logf("%d keys, %d cursors from 2^53 on", len(came), over)
}

// move gives slots between two neighbours to one of them: the border between node i and the next one is to be at slot border.
func (all *bySlotCluster) move(i, border int) {
	a, b := all.nodes[i], all.nodes[i+1]
	all.mu.Lock()
	defer all.mu.Unlock()
	from, to := a, b
	if border > b.from {
		from, to = b, a
	}
	a.to, b.from = border-1, border
	for slot, table := range from.tables {
		if slot >= to.from && slot <= to.to {
			to.tables[slot] = table
			delete(from.tables, slot)
		}
	}
	all.epoch++
	to.epoch = all.epoch
}

// Slots move while they are scanned, large ones among them, and no key is left out. The topology is old now and then.
func TestScanOfLargeSlotsThatMove(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(seed, 1))
			all := startBySlot(t, 3)
			for _, n := range all.nodes {
				for range 6 {
					n.fill(n.from+chance.IntN(n.to-n.from), 21+chance.IntN(3), 30)
				}
				n.fill(n.from, 22, 30)
				n.fill(n.from+1, 3, 5)
				n.fill(n.to, 22, 30)
			}
			c := openFake(t, all.ports[0], Options{Refresh: time.Hour})
			moves, steps, most := 0, 0, 3+chance.IntN(30)
			came := scanBySlot(t, c, func(uint64) {
				if steps++; chance.IntN(4) == 0 && moves < most {
					moves++
					i := chance.IntN(2)
					all.move(i, Slots*(i+1)/3-1500+chance.IntN(3000))
					if chance.IntN(2) == 0 {
						c.Refreshed(context.Background())
					}
				}
			})
			all.complete(t, came, false)
			t.Logf("%d moves: %d keys in %d steps", moves, len(came), steps)
		})
	}
}

// What says that it has come to a slot, and has returned a key of a later one, does not scan by slot.
func TestScanOfAnotherKindOfCursor(t *testing.T) {
	t.Parallel()
	port, _ := fakeNode(t, func(line string) string {
		if strings.HasPrefix(line, "SCAN ") {
			out := resp.AppendBulkString(resp.AppendArray(nil, 2), strconv.FormatUint(inSlot(5, 1<<40), 10))
			return string(resp.AppendBulkString(resp.AppendArray(out, 1), keyIn(6)))
		}
		return "-ERR unknown\r\n"
	})
	words := [][]byte{[]byte("SCAN"), []byte("0")}
	p := NewPlan(Command{Raw: resp.Command(words), Args: words, Facts: FactsOf("scan", []string{"readonly"}, nil)})
	if got := newClient(t, openFake(t, port, Options{}), nil, 2).run([]*Plan{p})[0]; got != "-"+errNodeCursor+"\r\n" {
		t.Errorf("got %q", got)
	}
}

// A stage ends ahead of a large slot as any other stage does: not if the node has lost one of its slots meanwhile.
func TestStageEndsAheadOfALargeSlot(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int]position{
		-1:  {class: finest, slot: 300, node: inSlot(300, 1<<22)},
		150: {class: 2, slot: 100},
		301: {class: finest, slot: 300, node: inSlot(300, 1<<22)}, // it is looked at when its own turn comes
	} {
		port, _ := fakeServer(t, func(port int, line string) string {
			switch {
			case line == "CLUSTER SLOTS":
				return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\na\r\n", port)
			case line == "CLUSTER NODES":
				slots := "0-16383"
				if lost >= 0 {
					slots = fmt.Sprintf("0-%d %d-16383", lost-1, lost+1)
				}
				return string(resp.AppendBulkString(nil, "a 127.0.0.1:1@2 myself,master - 0 0 1 connected "+slots+"\n"))
			case strings.HasPrefix(line, "SCAN "):
				out := resp.AppendBulkString(resp.AppendArray(nil, 2), strconv.FormatUint(inSlot(300, 1<<22), 10))
				out = resp.AppendArray(out, 4)
				for _, slot := range []int{99, 100, 200, 300} {
					out = resp.AppendBulkString(out, keyIn(slot))
				}
				return string(out)
			case line == "PING":
				return "+PONG\r\n"
			}
			return "-ERR unknown\r\n"
		})
		c := openFake(t, port, Options{Refresh: time.Hour})
		s := c.Snapshot()
		begins, _ := s.encode(position{class: 1, slot: 100})
		words := [][]byte{[]byte("SCAN"), strconv.AppendUint(nil, begins, 10)}
		p := NewPlan(Command{Raw: resp.Command(words), Args: words, Facts: FactsOf("scan", []string{"readonly"}, nil)})
		newClient(t, c, nil, 2).e.Do(context.Background(), []*Plan{p})
		v, ok := resp.ParseReply(p.Reply)
		if p.Err != nil || !ok || len(v.Elems) != 2 {
			t.Fatalf("got %q, %v", p.Reply, p.Err)
		}
		cursor, _ := strconv.ParseUint(string(v.Elems[0].Text), 10, 63)
		got := s.unfold(decodeCursor(cursor))
		if want.class == finest {
			want.mark = s.stageAt(want, nil).mark
		}
		if got != want || len(v.Elems[1].Elems) != 3 { // without the key ahead of the stage
			t.Errorf("slot %d is lost: got %+v, %q", lost, got, v.Elems[1].Raw)
		}
	}
}

// Where a stage goes on whose node has come to a large slot.
func TestStageGoesOn(t *testing.T) {
	t.Parallel()
	s := thirds()
	first := Slots / 3 // of the second node
	for name, c := range map[string]struct {
		class, slot int
		cursor      uint64
		next        position // its mark is looked at below
		end         int
		over        bool
	}{
		"class 0, small":             {0, first, 99, position{slot: first, node: 99}, 0, false},
		"class 0, its end":           {0, first, 0, position{slot: first}, 0, true},
		"class 0, its own slot":      {0, first, inSlot(first+9, 1<<30), position{slot: first, node: inSlot(first+9, 1<<30)}, 0, false},
		"class 0, one ahead":         {0, first, inSlot(7, 1<<30), position{slot: first, node: uint64(first)}, 0, false},
		"class 0, one behind":        {0, first, inSlot(Slots-1, 1<<30), position{slot: first, node: Slots}, 0, true},
		"class 2, small":             {2, 600, 7 << 20, position{class: 2, slot: 600, node: 7 << 20}, 1112, false},
		"class 2, its end":           {2, 600, 0, position{class: 2, slot: 600}, 1112, true},
		"class 2, one ahead":         {2, 600, inSlot(599, 1<<30), position{class: 2, slot: 600, node: 600}, 1112, false},
		"class 2, one behind":        {2, 600, inSlot(1112, 1<<30), position{class: 2, slot: 600, node: inSlot(1112, 1<<30)}, 1112, true},
		"class 2, its first":         {2, 600, inSlot(600, 1<<30), position{class: 6, slot: 600, node: inSlot(600, 1<<30)}, 600, false},
		"class 2, its last":          {2, 600, inSlot(1111, 1<<30), position{class: 6, slot: 1111, node: inSlot(1111, 1<<30)}, 1111, true},
		"class 6, its slot":          {6, 600, inSlot(600, 1<<30), position{class: 6, slot: 600, node: inSlot(600, 1<<30)}, 601, false},
		"class 6, one behind":        {6, 600, inSlot(601, 1<<30), position{class: 6, slot: 600, node: inSlot(601, 1<<30)}, 601, true},
		"class 7, its slot":          {7, 600, inSlot(600, 1<<30), position{class: 7, slot: 600, node: inSlot(600, 1<<30)}, 601, false},
		"class 7, one ahead":         {7, 600, inSlot(0, 1<<30), position{class: 7, slot: 600, node: 600}, 601, false},
		"class 7, another's, behind": {7, 600, inSlot(9000, 1<<30), position{class: 7, slot: 600, node: inSlot(9000, 1<<30)}, 601, true},
	} {
		at := position{class: c.class, slot: c.slot}
		st := s.stageAt(at, s.Masters[2])
		at.mark = st.mark
		c.next.mark = st.mark
		if c.next.class == finest && c.class != finest {
			c.next.mark = s.stageAt(c.next, nil).mark
		}
		next, end, over := s.goOn(at, st, c.cursor)
		if next != c.next || end != cmp.Or(c.end, st.end) || over != c.over {
			t.Errorf("%s: got %+v, %d, %v, want %+v, %d, %v", name, next, end, over, c.next, c.end, c.over)
		}
	}
}
