package history

import (
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome is what a client knows of an operation when it is over.
type outcome string

const (
	ok      outcome = "ok"
	null    outcome = "nil"     // not acquired
	failed  outcome = "failed"  // an error that says that nothing was done; Code has its first word
	unknown outcome = "unknown" // no answer, or an error that leaves open whether it was done
)

// side is which part of a lock a hold is of.
type side int

const (
	plain side = iota
	read
	write
)

func (s side) String() string { return [...]string{"plain", "read", "write"}[s] }

// op is one call of one client, or the end of its connection.
type op struct {
	ID, Client, Proxy, Conn int
	Verb                    string // LOCK, FAIRLOCK, RLOCK, WLOCK, MULTILOCK, UNLOCK, MULTIUNLOCK, RENEW, FENCED; BARE: Words alone; CLOSE: this client ended the connection
	Keys                    []string
	Owner                   string // of the id given, or of the connection: #<number>
	Explicit                bool   // OWNER was said
	Side                    side
	Block                   int64 // ms; -1: not said
	Lease                   int64 // ms; 0: the watchdog's
	Once, Self, Fence       bool
	All, Force              bool
	Words                   []string // of FENCED's inner command
	Call, Return            int64    // ns since the beginning
	Outcome                 outcome
	N                       int64   // a number that was the reply
	Tokens                  []int64 // MULTILOCK FENCE: of each key
	Code, Text              string
	Queued                  int64 // when it was first seen in Redis' fair queue, 0: never
}

func (o *op) key() string { return o.Keys[0] }

// acquires says whether the verb takes locks.
func (o *op) acquires() bool {
	switch o.Verb {
	case "LOCK", "FAIRLOCK", "RLOCK", "WLOCK", "MULTILOCK":
		return true
	}
	return false
}

// settled says that Redis' reply may have been lost, and that the proxy found out what had become of the request, or sent it
// again: for that it waits until the request can no longer be done, a second.
func (o *op) settled() bool { return o.Return-o.Call > 900*ms }

// tooLate says that a grant may have come after its own lease was over: the proxy gives it back then, and asks once more.
func (o *op) tooLate() bool { return o.Lease > 0 && o.Return-o.Call > o.Lease*ms }

// command is the operation as it is sent.
func (o *op) command() []any {
	var words []any
	if o.Verb == "BARE" {
		for _, w := range o.Words {
			words = append(words, w)
		}
		return words
	}
	words = append(words, o.Verb)
	if o.Verb == "MULTILOCK" || o.Verb == "MULTIUNLOCK" {
		words = append(words, len(o.Keys))
	}
	for _, k := range o.Keys {
		words = append(words, k)
	}
	if o.Side != plain && !o.acquires() {
		words = append(words, map[side]string{read: "READ", write: "WRITE"}[o.Side])
	}
	if o.Explicit && !o.Force {
		words = append(words, "OWNER", o.Owner)
	}
	for _, option := range []struct {
		said bool
		word string
	}{{o.Self, "SELF"}, {o.Once, "ONCE"}, {o.Fence, "FENCE"}, {o.All, "ALL"}, {o.Force, "FORCE"}} {
		if option.said {
			words = append(words, option.word)
		}
	}
	if o.acquires() && o.Block >= 0 {
		words = append(words, "BLOCK", o.Block)
	}
	if (o.acquires() || o.Verb == "RENEW") && o.Lease > 0 {
		words = append(words, "PX", o.Lease)
	}
	for _, w := range o.Words {
		words = append(words, w)
	}
	return words
}

// recorder gathers a history. Its clock is the one clock of all that is checked.
type recorder struct {
	start time.Time
	conns atomic.Int64

	mu     sync.Mutex
	ops    []*op
	fair   []*op // FAIRLOCKs of explicit owners that wait and were not yet seen in the queue
	faults []fault
	wrong  []violation
}

// fault is what the nemesis did.
type fault struct {
	At   int64
	What string
}

// violation is a promise that was broken.
type violation struct {
	Oracle, Text string
	Key          string
	Ops          []*op // those to blame
	picture      *porcupine.LinearizationInfo
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

// now is ns since the beginning, by the monotonic clock; never 0.
func (r *recorder) now() int64 { return int64(time.Since(r.start)) + 1 }

// begin notes that o is about to be sent.
func (r *recorder) begin(o *op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.ID = len(r.ops) + 1
	r.ops = append(r.ops, o)
	if o.Verb == "FAIRLOCK" && o.Explicit {
		r.fair = append(r.fair, o)
	}
	o.Call = r.now()
}

func (r *recorder) fault(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fault{r.now(), what})
}

// blame notes a violation that was seen while the workload ran.
func (r *recorder) blame(v violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, v)
}

func (r *recorder) blamed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wrong) > 0
}

// history is what was recorded, in the order of calls. Nothing may be under way.
func (r *recorder) history() []*op {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.now()
	for _, o := range r.ops {
		if o.Return == 0 {
			o.Outcome, o.Return, o.Text = unknown, end, "no reply"
		}
	}
	sort.SliceStable(r.ops, func(i, j int) bool { return r.ops[i].Call < r.ops[j].Call })
	return r.ops
}

// byKey splits a history; an operation on several keys stands in each, and the end of a connection in those of every lock
// that its own owner may have held.
func byKey(ops []*op) map[string][]*op {
	out := map[string][]*op{}
	may := map[string]map[string][3]bool{} // connection's owner -> key -> by side, whether it may hold it
	for _, o := range ops {
		if o.Verb == "CLOSE" {
			for k, sides := range may[o.Owner] {
				if sides != [3]bool{} {
					out[k] = append(out[k], o)
				}
			}
			continue
		}
		for _, k := range o.Keys {
			out[k] = append(out[k], o)
			if o.Explicit || o.Force {
				continue
			}
			if may[o.Owner] == nil {
				may[o.Owner] = map[string][3]bool{}
			}
			sides := may[o.Owner][k]
			switch {
			case o.acquires() && (o.Outcome == ok || o.Outcome == unknown):
				sides[o.Side] = true
			case o.Verb == "UNLOCK" && (o.Outcome == ok && o.N == 1 || o.Outcome == failed && o.Code != "ERR"):
				sides[o.Side] = false
			}
			may[o.Owner][k] = sides
		}
	}
	return out
}

func connOwner(n int) string { return "#" + strconv.Itoa(n) }

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	never  = int64(1) << 62
)
