package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		how     Response
		replies string // with | between
		want    string
	}{
		{Sum, ":1\r\n|:2\r\n|:-5\r\n", ":-2\r\n"},
		{Min, ":1\r\n|:2\r\n|:-5\r\n", ":-5\r\n"},
		{Max, ":1\r\n|:2\r\n|:-5\r\n", ":2\r\n"},
		{LogicalAnd, ":1\r\n|:2\r\n", ":1\r\n"},
		{LogicalAnd, "*2\r\n:1\r\n:0\r\n|*2\r\n:1\r\n:1\r\n", "*2\r\n:1\r\n:0\r\n"},
		{LogicalOr, "*2\r\n:0\r\n:0\r\n|*2\r\n:0\r\n:1\r\n", "*2\r\n:0\r\n:1\r\n"},
		{Sum, ":1\r\n|-ERR x\r\n|-ERR y\r\n", "-ERR x\r\n"},
		{Sum, ":1\r\n|*1\r\n:1\r\n", ":2\r\n"},
		{Sum, ":1\r\n|*0\r\n", "-" + badReply + "\r\n"},
		{Sum, ":1\r\n|+OK\r\n", "-" + badReply + "\r\n"},
		{AllSucceeded, "+OK\r\n|+OK\r\n", "+OK\r\n"},
		{AllSucceeded, "+OK\r\n|-NOPERM x\r\n", "-NOPERM x\r\n"},
		{OneSucceeded, "-NOTBUSY x\r\n|+OK\r\n|-NOTBUSY y\r\n", "+OK\r\n"},
		{OneSucceeded, "-NOTBUSY x\r\n|-NOTBUSY y\r\n", "-NOTBUSY x\r\n"},
		{OneSucceeded, "-NOTBUSY x\r\n|-UNKILLABLE y\r\n|-NOTBUSY z\r\n", "-UNKILLABLE y\r\n"},
		{NoPolicy, "*1\r\n$1\r\na\r\n|*0\r\n|*2\r\n,1.5\r\n%1\r\n+a\r\n:1\r\n", "*3\r\n$1\r\na\r\n,1.5\r\n%1\r\n+a\r\n:1\r\n"},
		{NoPolicy, "~1\r\n:1\r\n|~1\r\n:2\r\n", "~2\r\n:1\r\n:2\r\n"},
		{NoPolicy, "_\r\n|$1\r\na\r\n|$-1\r\n", "$1\r\na\r\n"},
		{Each, ":1\r\n|$1\r\na\r\n|-ERR x\r\n", "*3\r\n:1\r\n$1\r\na\r\n-ERR x\r\n"},
		{NoPolicy, "broken|:1\r\n", "-" + badReply + "\r\n"},
	} {
		p := planOf(c.how, c.replies)
		if p.finish(nil); string(p.Reply) != c.want || p.Err != nil {
			t.Errorf("%d %q: got %q, %v", c.how, c.replies, p.Reply, p.Err)
		}
	}
}

func planOf(how Response, replies string) *Plan {
	p := &Plan{cmd: Command{Facts: &Facts{Response: how}}, merge: true}
	for r := range strings.SplitSeq(replies, "|") {
		p.units = append(p.units, unit{plan: p, outcome: outcome{reply: []byte(r), done: true}})
	}
	return p
}

// What is not known goes before what was not done, and that before what Redis has refused.
func TestMergeOfFailures(t *testing.T) {
	t.Parallel()
	lost, unsent := &upstream.LostError{Cause: errSlow}, &upstream.NotSentError{Cause: errSlow}
	p := planOf(Sum, "-ERR x\r\n|:1\r\n|:1\r\n")
	p.units[1].err, p.units[2].err = unsent, lost
	if p.finish(nil); p.Err != lost || p.Reply != nil {
		t.Errorf("got %q, %v", p.Reply, p.Err)
	}
	p = planOf(OneSucceeded, "+OK\r\n|:1\r\n")
	p.units[1].err = unsent
	if p.finish(nil); p.Err != nil || string(p.Reply) != "+OK\r\n" {
		t.Errorf("got %q, %v", p.Reply, p.Err)
	}
	p = planOf(AllSucceeded, "+OK\r\n|:1\r\n")
	p.units[1].err, p.units[1].optional = unsent, true
	if p.finish(nil); p.Err != nil || string(p.Reply) != "+OK\r\n" {
		t.Errorf("a replica out of reach: got %q, %v", p.Reply, p.Err)
	}
	p.done, p.units[1].err = false, lost
	if p.finish(nil); !errors.Is(p.Err, errSlow) {
		t.Errorf("a replica's lost reply: got %q, %v", p.Reply, p.Err)
	}
	p.Err, p.done, p.units[1].err = nil, false, &upstream.FullError{}
	if p.finish(nil); !upstream.IsFull(p.Err) {
		t.Errorf("no connection to a replica allowed: got %q, %v", p.Reply, p.Err)
	}
}

// A replica that can run nothing at the moment is left out, and fails no command for all nodes; what a master says counts, and so does
// what a replica refuses for another reason.
func TestMergeOfReplicasThatRunNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		how           Response
		replies, want string // the last reply is a replica's
	}{
		{AllSucceeded, "+OK\r\n|-LOADING Redis is loading the dataset in memory\r\n", "+OK\r\n"},
		{AllSucceeded, "+OK\r\n|-BUSY Redis is busy running a script.\r\n", "+OK\r\n"},
		{AllSucceeded, "+OK\r\n|-MASTERDOWN Link with MASTER is down\r\n", "+OK\r\n"},
		{NoPolicy, "$1\r\na\r\n|-LOADING x\r\n", "$1\r\na\r\n"},
		{Sum, ":1\r\n|:1\r\n|-LOADING x\r\n", ":2\r\n"},
		{AllSucceeded, "-LOADING x\r\n|-LOADING x\r\n", "-LOADING x\r\n"},
		{AllSucceeded, "-BUSY x\r\n|+OK\r\n", "-BUSY x\r\n"},
		{AllSucceeded, "+OK\r\n|-NOPERM x\r\n", "-NOPERM x\r\n"},
		{AllSucceeded, "+OK\r\n|-BUSYKEY x\r\n", "-BUSYKEY x\r\n"},
		{AllSucceeded, "+OK\r\n|-READONLY x\r\n", "-READONLY x\r\n"},
	} {
		p := planOf(c.how, c.replies)
		p.units[len(p.units)-1].optional = true
		if p.finish(nil); string(p.Reply) != c.want || p.Err != nil {
			t.Errorf("%d %q: got %q, %v", c.how, c.replies, p.Reply, p.Err)
		}
	}
	p := planOf(Each, ":1\r\n|-LOADING x\r\n") // of any nodes: who asks is told which of them refuse
	p.cmd.Facts.Partial, p.units[0].optional, p.units[1].optional = true, true, true
	if p.finish(nil); string(p.Reply) != "*2\r\n:1\r\n-LOADING x\r\n" {
		t.Errorf("got %q, %v", p.Reply, p.Err)
	}
}

// Of a Partial command's nodes any may be out of reach, but not all.
func TestMergeOfSome(t *testing.T) {
	t.Parallel()
	lost, unsent := &upstream.LostError{Cause: errSlow}, &upstream.NotSentError{Cause: errSlow}
	p := planOf(Each, ":1\r\n|:1\r\n|:2\r\n")
	p.cmd.Facts.Partial = true
	for i := range p.units {
		p.units[i].optional = true
	}
	p.units[0].err, p.units[1].err = unsent, lost
	if p.finish(nil); p.Err != nil || string(p.Reply) != "*1\r\n:2\r\n" {
		t.Errorf("got %q, %v", p.Reply, p.Err)
	}
	p.done, p.units[2].err = false, unsent
	if p.finish(nil); !errors.Is(p.Err, errSlow) {
		t.Errorf("nobody answers: got %q, %v", p.Reply, p.Err)
	}
}

// However many elements replies have, to merge them takes little more memory than their bytes.
func TestMergeTakesNoMemoryForElements(t *testing.T) {
	const keys = 300_000
	words, at := [][]byte{[]byte("MGET")}, []int{}
	for i := range keys {
		words, at = append(words, fmt.Appendf(nil, "{%d}", i%3)), append(at, 1+i)
	}
	p := NewPlan(Command{Args: words, Keys: at, Facts: FactsOf("mget", []string{"readonly"}, nil)})
	bytes := 0
	for i := range p.units {
		u := &p.units[i]
		u.done, u.reply = true, resp.AppendArray(nil, len(u.keys))
		for range u.keys {
			u.reply = resp.AppendNull(u.reply, 2)
		}
		bytes += len(u.reply)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	asked := 0
	p.finish(func(n int) bool { asked = n; return true })
	runtime.ReadMemStats(&after)
	if n, _, _ := resp.Open(p.Reply); n != keys || p.Err != nil {
		t.Fatalf("%d elements, %v", n, p.Err)
	}
	if took := int(after.TotalAlloc - before.TotalAlloc); took > asked+1<<20 {
		t.Errorf("%d bytes of replies took %d bytes more, and %d were asked for", bytes, took, asked)
	}
}

// So it is with the keys of a SCAN.
func TestScanTakesNoMemoryForElements(t *testing.T) {
	const n = 300_000
	reply := resp.AppendArray(resp.AppendBulkString(resp.AppendArray(nil, 2), "7"), n)
	for range n {
		reply = resp.AppendBulkString(reply, "k")
	}
	p := &Plan{kind: byCursor, at: scanPosition{mark: 3}, masters: 2}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, _ := resp.Outline(reply)
	out := p.scanReply(v)
	runtime.ReadMemStats(&after)
	if !bytes.HasSuffix(out, reply[10:]) {
		t.Error("keys are missing")
	}
	if took := int(after.TotalAlloc - before.TotalAlloc); took > 2*len(reply)+1<<20 {
		t.Errorf("%d bytes of keys took %d bytes more", len(reply), took)
	}
}
