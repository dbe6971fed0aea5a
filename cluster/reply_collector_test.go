package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// holder is a client that may hold so much.
type holder struct {
	most  int64
	asked atomic.Int64 // the most there was
}

func (h *holder) MayHold(n int) bool {
	h.asked.Store(max(h.asked.Load(), int64(n)))
	return int64(n) <= h.most
}

// pieces keeps what it is handed over.
type pieces struct {
	all   bytes.Buffer
	calls int
	each  func()
}

func (p *pieces) Reply(b []byte) {
	p.calls++
	p.all.Write(b)
	if p.each != nil {
		p.each()
	}
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// Long replies are gathered in pieces among short ones, whatever node they come from, and stay in order.
func TestLongRepliesGathered(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 2)
	h := &holder{most: 64 << 20}
	cl.e.For(h)
	var lines, want []string
	for i := range 40 {
		value := strings.Repeat(string(rune('a'+i%26)), []int{1, 1000, 60 << 10, resp.Long - 1, resp.Long + 1, 700 << 10}[i%6])
		cl.expect(fmt.Sprintf("SET k%d %s", i, value), "+OK\r\n")
		lines, want = append(lines, fmt.Sprint("GET k", i)), append(want, bulk(value))
	}
	for _, private := range []bool{false, true} {
		cl.e.Private(private)
		plans := make([]*Plan, len(lines))
		for i, l := range lines {
			plans[i] = NewPlan(cl.table.command(strings.Fields(l)...))
			plans[i].InPieces()
		}
		cl.e.Do(context.Background(), plans)
		long := 0
		for i, p := range plans {
			got := string(p.Reply)
			if p.Pieces != nil {
				long++
				got += string(bytes.Join(p.Pieces, nil))
			}
			if p.Err != nil || got != want[i] {
				t.Fatalf("private %v: reply %d has %d bytes, want %d; %v", private, i, len(got), len(want[i]), p.Err)
			}
		}
		if long < 6 {
			t.Errorf("private %v: %d replies in pieces", private, long)
		}
		for i, got := range cl.do(lines...) {
			if got != want[i] {
				t.Errorf("private %v: reply %d in one piece is wrong", private, i)
			}
		}
	}
	if n := h.asked.Load(); n < 7*700<<10 {
		t.Errorf("asked about %d bytes at most", n)
	}
	// What must not be held is thrown away, be it of one command or merged.
	keys := make([]string, len(lines))
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	h.most = 1 << 20
	for _, line := range []string{"GET k5", "MGET " + strings.Join(keys, " "), strings.Join(lines, ";")} {
		h.asked.Store(0)
		var plans []*Plan
		for l := range strings.SplitSeq(line, ";") {
			plans = append(plans, NewPlan(cl.table.command(strings.Fields(l)...)))
		}
		cl.e.Do(context.Background(), plans)
		tooMuch := 0
		for _, p := range plans {
			if errors.Is(p.Err, ErrTooMuch) {
				tooMuch++
			}
		}
		if wants := line != "GET k5"; (tooMuch > 0) != wants {
			t.Errorf("%.20s: %d of %d were too much", line, tooMuch, len(plans))
		}
		if n := h.asked.Load(); n > 4<<20 {
			t.Errorf("%.20s: %d bytes were held", line, n)
		}
	}
	h.most = 64 << 20
	cl.expect("GET k0", bulk("a"))
}

// A reply is passed on as it comes, unless it is an error; it is found where its slot has gone to.
func TestLongReplyStreamed(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 3)
	cl.e.Private(true)
	key, value := keyIn(100), strings.Repeat("x", 5<<20)
	cl.expect("SET "+key+" "+value, "+OK\r\n")
	stream := func(line string) (*Plan, *pieces) {
		got := &pieces{}
		p := NewPlan(cl.table.command(strings.Fields(line)...))
		p.Stream(got)
		cl.e.Do(context.Background(), []*Plan{p})
		return p, got
	}
	whole := func(when string) {
		t.Helper()
		if p, got := stream("GET " + key); p.Err != nil || p.Reply != nil || got.all.String() != bulk(value) || got.calls < 10 {
			t.Errorf("%s: %d bytes in %d pieces, %v", when, got.all.Len(), got.calls, p.Err)
		}
	}
	whole("as it is")
	if p, got := stream("LPUSH " + key + " a"); got.calls > 0 || !strings.HasPrefix(string(p.Reply), "-WRONGTYPE") {
		t.Errorf("an error: %q, %d pieces", p.Reply, got.calls)
	}
	if err := tc.MoveSlot(100, tc.Servers[0], tc.Servers[1]); err != nil {
		t.Fatal(err)
	}
	whole("moved")
	if err := tc.BeginMove(100, tc.Servers[1], tc.Servers[2]); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.MoveKeys(100, tc.Servers[1], tc.Servers[2], 10); err != nil {
		t.Fatal(err)
	}
	if p, got := stream("GET " + key); p.Err != nil || string(p.Reply)+got.all.String() != bulk(value) {
		t.Errorf("behind ASKING: %d and %d bytes, %v", len(p.Reply), got.all.Len(), p.Err)
	}
	if p, got := stream("MGET " + key + " other"); p.Err != nil || got.calls > 0 || !strings.HasPrefix(string(p.Reply), "*2\r\n") {
		t.Errorf("merged: %d bytes, %d pieces, %v", len(p.Reply), got.calls, p.Err)
	}
}

// What has been passed on in part is not asked for again when the node is lost.
func TestStreamLost(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 2)
	key := keyIn(100)
	cl.expect("SET "+key+" "+strings.Repeat("x", 12<<20), "+OK\r\n")
	cl.e.Private(true)
	got := &pieces{}
	got.each = func() {
		if got.calls == 3 {
			tc.Servers[0].Kill()
		}
	}
	p := NewPlan(cl.table.command("GET", key))
	p.Stream(got)
	cl.e.Do(context.Background(), []*Plan{p})
	var lost *upstream.LostError
	if !errors.As(p.Err, &lost) || got.calls == 0 || p.Reply != nil {
		t.Errorf("%v after %d bytes", p.Err, got.all.Len())
	}
	if n := strings.Count(got.all.String(), "$"); n != 1 {
		t.Errorf("the reply began %d times", n)
	}
}

// A time-out is for the node: one that stops in the middle of a reply that is passed on has it, who takes that reply slowly has not.
func TestStreamTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second // in which a node that is not stopped sends something, also when the machine stalls
	tc := testredis.StartCluster(t, 1, 0)
	c := openCluster(t, tc, Options{Timeout: timeout})
	cl := newClient(t, c, learn(t, c), 2)
	value := strings.Repeat("x", 40<<20)
	tc.Servers[0].Do(t, "SET", "k", value)
	cl.e.Private(true)
	stream := func(third func()) (*Plan, *pieces) {
		got := &pieces{}
		got.each = func() {
			if got.calls == 3 {
				third()
			}
		}
		p := NewPlan(cl.table.command("GET", "k"))
		p.Stream(got)
		cl.e.Do(context.Background(), []*Plan{p})
		return p, got
	}
	if p, got := stream(func() { time.Sleep(3 * timeout) }); p.Err != nil || got.all.String() != bulk(value) {
		t.Errorf("taken slowly: %v after %d bytes", p.Err, got.all.Len())
	}
	t.Cleanup(tc.Servers[0].Cont)
	if p, got := stream(tc.Servers[0].Stop); !errors.Is(p.Err, upstream.ErrTimeout) || got.calls == 0 {
		t.Errorf("a node that has stopped: %v after %d bytes", p.Err, got.all.Len())
	}
}
