// Package history has what random users of locks do, writes it down, and finds what is wrong with it. The same users, and the same
// oracles, are at work on real proxies (integration/history) and in a bubble (internal/simulation).
package history

import (
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is what a client knows of an operation when it is over.
type Outcome string

const (
	OK      Outcome = "ok"
	Null    Outcome = "nil"     // not acquired
	Failed  Outcome = "failed"  // an error that says that nothing was done; Code has its first word
	Unknown Outcome = "unknown" // no answer, or an error that leaves open whether it was done
)

// Side is which part of a lock a hold is of.
type Side int

const (
	Plain Side = iota
	Read
	Write
)

func (s Side) String() string { return [...]string{"plain", "read", "write"}[s] }

// Op is one call of one client, or the end of its connection.
type Op struct {
	ID, Client, Proxy, Conn int
	Verb                    string // LOCK, FAIRLOCK, RLOCK, WLOCK, MULTILOCK, UNLOCK, MULTIUNLOCK, RENEW, FENCED; BARE: Words alone; CLOSE: this client ended the connection
	Keys                    []string
	Owner                   string // of the id given, or of the connection: #<number>
	Named                   bool   // OWNER was said
	Side                    Side
	Block                   int64 // ms; -1: not said
	Lease                   int64 // ms; 0: the watchdog's
	Limit                   int64 // so many may hold the lock; 0: not said
	Self, Fence             bool
	All, Force              bool
	Words                   []string // of FENCED's inner command
	Call, Return            int64    // ns since the beginning
	Outcome                 Outcome
	N                       int64   // a number that was the reply
	Tokens                  []int64 // MULTILOCK FENCE: of each key
	Code, Text              string
	Queued                  int64 // when it was first seen in Redis' fair queue, 0: never
}

// Key is the one key of most verbs, or the first.
func (o *Op) Key() string { return o.Keys[0] }

// Acquires says whether the verb takes locks.
func (o *Op) Acquires() bool {
	switch o.Verb {
	case "LOCK", "FAIRLOCK", "RLOCK", "WLOCK", "MULTILOCK":
		return true
	}
	return false
}

// Settled says that Redis' reply may have been lost, and that the proxy found out what had become of the request, or sent it
// again: for that it waits until the request can no longer be done, a second.
func (o *Op) Settled() bool { return o.Return-o.Call > 900*ms }

// tooLate says that a grant may have come after its own lease was over: the proxy gives it back then, and asks once more.
func (o *Op) tooLate() bool { return o.Lease > 0 && o.Return-o.Call > o.Lease*ms }

// Command is the operation as it is sent.
func (o *Op) Command() []any {
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
	if o.Side != Plain && !o.Acquires() {
		words = append(words, map[Side]string{Read: "READ", Write: "WRITE"}[o.Side])
	}
	if o.Named && !o.Force {
		words = append(words, "OWNER", o.Owner)
	}
	for _, option := range []struct {
		said bool
		word string
	}{{o.Self, "SELF"}, {o.Fence, "FENCE"}, {o.All, "ALL"}, {o.Force, "FORCE"}} {
		if option.said {
			words = append(words, option.word)
		}
	}
	if o.Acquires() && o.Block >= 0 {
		words = append(words, "BLOCK", o.Block)
	}
	if (o.Acquires() || o.Verb == "RENEW") && o.Lease > 0 {
		words = append(words, "PX", o.Lease)
	}
	if o.Limit > 0 {
		words = append(words, "LIMIT", o.Limit)
	}
	for _, w := range o.Words {
		words = append(words, w)
	}
	return words
}

// Recorder gathers a history. Its clock is the one clock of all that is checked.
type Recorder struct {
	Refusals []string // the beginnings of errors with which Redis itself refuses a command in this run; nothing is done then

	start time.Time
	conns atomic.Int64

	mu     sync.Mutex
	ops    []*Op
	fair   []*Op // FAIRLOCKs of named owners that wait and were not yet seen in the queue
	faults []Fault
	lapses []Lapse
	wrong  []Violation
	seen   map[string][]sighting // of each key
}

// Fault is what was done to proxies, wires and Redis.
type Fault struct {
	At   int64
	Kind Kind
	What string
}

// Violation is a promise that was broken.
type Violation struct {
	Oracle, Text string
	Key          string
	Ops          []*Op // those to blame
	picture      *porcupine.LinearizationInfo
}

// NewRecorder returns an empty one, whose clock begins now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now is ns since the beginning, by the monotonic clock; never 0.
func (r *Recorder) Now() int64 { return int64(time.Since(r.start)) + 1 }

// Begin notes that o is about to be sent.
func (r *Recorder) Begin(o *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.ID = len(r.ops) + 1
	r.ops = append(r.ops, o)
	if o.Verb == "FAIRLOCK" && o.Named {
		r.fair = append(r.fair, o)
	}
	o.Call = r.Now()
}

// Conn numbers a connection that is no Client's.
func (r *Recorder) Conn() int { return int(r.conns.Add(1)) }

// End notes that an operation is over.
func (r *Recorder) End(o *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Return = r.Now()
}

// Open are the operations that have no reply yet.
func (r *Recorder) Open() (open []*Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o.Return == 0 {
			open = append(open, o)
		}
	}
	return open
}

// Fair are the FAIRLOCKs of named owners that wait and were not yet seen in the queue.
func (r *Recorder) Fair() []*Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fair = slices.DeleteFunc(r.fair, func(o *Op) bool { return o.Return != 0 || o.Queued != 0 })
	return slices.Clone(r.fair)
}

// Queued notes that an operation was seen in the queue.
func (r *Recorder) Queued(o *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Queued = r.Now()
}

// Recent are the keys of so many of the last calls.
func (r *Recorder) Recent(calls int) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops[max(0, len(r.ops)-calls):] {
		if len(o.Keys) > 0 && !slices.Contains(keys, o.Keys[0]) {
			keys = append(keys, o.Keys[0])
		}
	}
	return keys
}

// Faults are those noted so far.
func (r *Recorder) Faults() []Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.faults)
}

// Wrong are the violations that were seen while the workload ran.
func (r *Recorder) Wrong() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.wrong)
}

// Fault notes one.
func (r *Recorder) Fault(kind Kind, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, Fault{r.Now(), kind, what})
}

// Blame notes a violation that was seen while the workload ran.
func (r *Recorder) Blame(v Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, v)
}

// Blamed says whether a violation was seen.
func (r *Recorder) Blamed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wrong) > 0
}

// History is what was recorded, in the order of calls. Nothing may be under way.
func (r *Recorder) History() []*Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.Now()
	for _, o := range r.ops {
		if o.Return == 0 {
			o.Outcome, o.Return, o.Text = Unknown, end, "no reply"
		}
	}
	sort.SliceStable(r.ops, func(i, j int) bool { return r.ops[i].Call < r.ops[j].Call })
	return r.ops
}

// Places are how many owners may hold the lock that these calls are about at one time: the fewest and the most that any of them allows. A LIMIT
// that changes has two.
func Places(ops []*Op) (fewest, most int) {
	for _, o := range ops {
		if n := int(max(1, o.Limit)); o.Acquires() {
			most = max(most, n)
			if fewest == 0 || n < fewest {
				fewest = n
			}
		}
	}
	return max(1, fewest), max(1, most)
}

// Limited are the locks with LIMIT that these calls are about, and the most that may hold each.
func Limited(ops []*Op) map[string]int {
	most := map[string]int{}
	for _, o := range ops {
		if o.Limit > 0 {
			most[o.Key()] = max(most[o.Key()], int(o.Limit))
		}
	}
	return most
}

// ByKey splits a history; an operation on several keys stands in each, and the end of a connection in those of every lock
// that its own owner may have held.
func ByKey(ops []*Op) map[string][]*Op {
	out := map[string][]*Op{}
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
			if o.Named || o.Force {
				continue
			}
			if may[o.Owner] == nil {
				may[o.Owner] = map[string][3]bool{}
			}
			sides := may[o.Owner][k]
			switch {
			case o.Acquires() && (o.Outcome == OK || o.Outcome == Unknown):
				sides[o.Side] = true
			case o.Verb == "UNLOCK" && (o.Outcome == OK && o.N == 1 || o.Outcome == Failed && o.Code != "ERR"):
				sides[o.Side] = false
			}
			may[o.Owner][k] = sides
		}
	}
	return out
}

// ConnOwner stands for the owner that the connection of that number is.
func ConnOwner(n int) string { return "#" + strconv.Itoa(n) }

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	never  = int64(1) << 62
)
