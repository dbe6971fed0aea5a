package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// openFake opens a cluster whose only node listens on that port.
func openFake(t *testing.T, port int, o Options) *Cluster {
	t.Helper()
	seed := fmt.Sprintf("127.0.0.1:%d", port)
	return openTarget(t, upstream.ClusterTarget{Seeds: []string{seed}, Node: upstream.Target{Network: "tcp"}}, o)
}

// What a node's error says of the slot, or of the node. A redirect counts only if it names a slot that a cluster can have.
func TestReadRefusal(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]struct {
		kind refusalKind
		slot int
		addr string
	}{
		"-MOVED 0 h:1\r\n":                       {moved, 0, "h:1"},
		"-ASK 16383 h:1\r\n":                     {asked, 16383, "h:1"},
		"-TRYAGAIN x\r\n":                        {tryAgain, 0, ""},
		"-CLUSTERDOWN x\r\n":                     {clusterDown, 0, ""},
		"-MOVED 16384 h:1\r\n":                   {noRefusal, 0, ""},
		"-MOVED -1 h:1\r\n":                      {noRefusal, 0, ""},
		"-ASK 99999 h:1\r\n":                     {noRefusal, 0, ""},
		"-ASK -9223372036854775808 h:1\r\n":      {noRefusal, 0, ""},
		"-MOVED 99999999999999999999999 h:1\r\n": {noRefusal, 0, ""},
		"-MOVED 1\r\n":                           {noRefusal, 0, ""},
		"-MOVED 1 h:1 x\r\n":                     {noRefusal, 0, ""},
		"-ERR WAIT cannot be used with replica instances.\r\n": {demoted, 0, ""},
		"-READONLY x\r\n": {demoted, 0, ""},
		"-BUSY x\r\n":     {runsNothing, 0, ""},
		"-BUSYKEY x\r\n":  {noRefusal, 0, ""},
		"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n": {noRefusal, 0, ""},
		"-LOADING\r\n":         {runsNothing, 0, ""},
		"-NOPERM x\r\n":        {notAllowed, 0, ""},
		"$5\r\n-ASK \r\n":      {noRefusal, 0, ""},
		"":                     {noRefusal, 0, ""},
		"-ERR MOVED 1 h:1\r\n": {noRefusal, 0, ""},
	} {
		if r := readRefusal([]byte(reply)); r.kind != want.kind || r.slot != want.slot || r.addr != want.addr {
			t.Errorf("%q: got %+v", reply, r)
		}
		if got := RefusedForSlot([]byte(reply)); got != (want.kind >= moved && want.kind <= clusterDown) {
			t.Errorf("%q: refused for its slot: %v", reply, got)
		}
	}
	if !RefusedForSlot([]byte("-MOVED 1 a-name-that-goes-on-behind-the-bytes-that-are-looked-at")) {
		t.Error("the beginning of a reply is not enough")
	}
}

// A command without keys that is redirected to a slot that no cluster has is answered what the node says.
func TestRedirectToASlotOutsideTheCluster(t *testing.T) {
	t.Parallel()
	for _, slot := range []int{Slots, 99999, -2} {
		redirect := fmt.Sprintf("-MOVED %d 127.0.0.1:1\r\n", slot)
		port, _ := fakeNode(t, func(string) string { return redirect })
		cl := newClient(t, openFake(t, port, Options{}), nil, 2)
		bare := Command{Raw: resp.AppendCommand(nil, "GEORADIUS", "STORE"), Args: [][]byte{[]byte("GEORADIUS"), []byte("STORE")}, Facts: FactsOf("georadius", nil, nil)}
		if got := cl.run([]*Plan{NewPlan(bare)})[0]; got != redirect {
			t.Errorf("slot %d: got %q", slot, got)
		}
	}
}

// A row of CLUSTER SLOTS may lack what there is to know of the master, and name replicas all the same.
func TestSlotsWithoutAMaster(t *testing.T) {
	t.Parallel()
	const master, replica = "*3\r\n$1\r\nh\r\n:1\r\n$1\r\nm\r\n", "*3\r\n$1\r\nh\r\n:2\r\n$1\r\nr\r\n"
	for name, row := range map[string]string{
		"empty":     "*4\r\n:0\r\n:1\r\n*0\r\n" + replica,
		"null":      "*4\r\n:0\r\n:1\r\n*-1\r\n" + replica,
		"an int":    "*4\r\n:0\r\n:1\r\n:7\r\n" + replica,
		"two words": "*4\r\n:0\r\n:1\r\n*2\r\n$1\r\nh\r\n:1\r\n" + replica,
	} {
		whole := "*4\r\n:2\r\n:16383\r\n" + master + replica
		slots, ok := resp.ParseReply([]byte("*2\r\n" + row + whole))
		if !ok {
			t.Fatal(name)
		}
		fault := resp.Reply{Kind: '-'}
		v, err := readView(fault, slots, fault, "h", false)
		if err != nil || v.owner[0] != -1 || v.owner[1] != -1 || v.claimed() != Slots-2 {
			t.Fatalf("%s: %d slots have an owner, %v", name, v.claimed(), err)
		}
		if n := v.nodes[v.find("r")]; n.master || n.of != "" {
			t.Errorf("%s: the replica is %+v", name, n)
		}
	}
}

// A node that sends something else ahead of its answer, at length, has not answered.
func TestProbeThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	odd := "|1\r\n$1000000\r\n" + strings.Repeat("x", 1000000) + "\r\n+x\r\n>1\r\n+a\r\n:1\r\n"
	redirect := fmt.Sprintf("-MOVED %d 127.0.0.1:1\r\n", Slot([]byte("k")))
	port, _ := fakeNode(t, func(line string) string {
		if strings.HasPrefix(line, "EXISTS ") {
			return odd
		}
		return redirect
	})
	cl := newClient(t, openFake(t, port, Options{RetryFor: 50 * time.Millisecond}), nil, 2)
	words := [][]byte{[]byte("EVAL"), []byte("s"), []byte("1"), []byte("k")}
	eval := Command{Raw: resp.AppendCommand(nil, "EVAL", "s", "1", "k"), Args: words, Keys: []int{3}, Facts: FactsOf("eval", nil, nil)}
	if got := cl.run([]*Plan{NewPlan(eval)})[0]; got != redirect {
		t.Errorf("got %.100q", got)
	}
}

// A command is split only if its keys are where a command that can be split has them, whatever COMMAND says.
func TestSplitByOddKeys(t *testing.T) {
	t.Parallel()
	const wrong = "ERR wrong number of arguments for 'mset' command"
	for name, of := range map[string]struct {
		keys []int
		want string
	}{
		"even":             {[]int{1, 3}, ""},
		"twice the same":   {[]int{1, 1, 2}, commandtable.CrossSlot},
		"backwards":        {[]int{3, 1}, commandtable.CrossSlot},
		"at odd distances": {[]int{1, 3, 4}, commandtable.CrossSlot},
		"each is a key":    {[]int{1, 2, 3, 4}, ""},
		"a word too long":  {[]int{2, 4}, wrong},
	} {
		args := [][]byte{[]byte("MSET"), []byte("a"), []byte("b"), []byte("c"), []byte("d")}
		p := NewPlan(Command{Args: args, Keys: of.keys, Facts: FactsOf("mset", nil, nil)})
		if want := string(resp.AppendError(nil, of.want)); of.want == "" && p.done || of.want != "" && string(p.Reply) != want {
			t.Errorf("%s: got %q", name, p.Reply)
		}
	}
}

// After a failover the former master stays in its shard, and CLUSTER SHARDS of Redis 8.2 leaves the shard's slots out. CLUSTER SLOTS has them.
func TestShardWithoutItsSlots(t *testing.T) {
	t.Parallel()
	node := func(id, port string) string {
		return "*8\r\n$2\r\nid\r\n$1\r\n" + id + "\r\n$4\r\nport\r\n:" + port + "\r\n$8\r\nendpoint\r\n$1\r\nh\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
	}
	shards, ok := resp.ParseReply([]byte("*1\r\n*4\r\n$5\r\nslots\r\n*0\r\n$5\r\nnodes\r\n*2\r\n" + node("a", "1") + node("b", "2")))
	if !ok {
		t.Fatal("shards")
	}
	slots, ok := resp.ParseReply([]byte("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$1\r\nh\r\n:2\r\n$1\r\nb\r\n"))
	if !ok {
		t.Fatal("slots")
	}
	v, err := readView(shards, slots, resp.Reply{Kind: '-'}, "h", false)
	if err != nil || v.claimed() != Slots || v.nodes[v.owner[0]].id != "b" || len(v.nodes) != 2 {
		t.Errorf("%v: %d slots have an owner, of %+v", err, v.claimed(), v.nodes)
	}
}
