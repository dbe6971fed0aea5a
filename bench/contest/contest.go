// Package contest is the frame of a contestant: a program with some clients that each take and release a lock over and over. Those in
// other languages do the same.
//
//	contestant -addr host:port[,host:port…] -lock name -clients n [-shared] -warm seconds -seconds seconds
//
// It connects, loops for the time to get warm, prints "begin", loops on, prints one line of JSON, and ends when its standard input
// does. Whoever started it reads what it and the servers have used when each line comes. A failure is told on standard error, with
// an exit code that is not 0.
package contest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Settings are what the arguments chose.
type Settings struct {
	Addr    string // or several, with commas: see AddrOf
	Lock    string
	Clients int
	Shared  bool // all want one lock, and it is checked that one holds it at a time
	Warm    time.Duration
	Length  time.Duration
}

// AddrOf is the address of client i: each has the next one.
func (s Settings) AddrOf(i int) string {
	all := strings.Split(s.Addr, ",")
	return all[i%len(all)]
}

// Key is the lock of client i. Another process has other locks: what this one leaves behind is in nobody's way.
func (s Settings) Key(i int) string {
	if s.Shared {
		i = 0
	}
	return fmt.Sprintf("bench:lock:%d:%d", os.Getpid(), i)
}

// Pair is what one client does over and over. Release may be nil: then it is no lock, and Take a command.
type Pair struct{ Take, Release func() error }

// Contestant is one kind of lock.
type Contestant struct {
	Version string
	Start   func(Settings) (client func(i int) (Pair, error), err error) // client connects client i
}

// Result is the line of JSON.
type Result struct {
	Version string  `json:"version"`
	Pairs   int64   `json:"pairs"`
	Changes int64   `json:"changes"` // of the pairs, when shared: those of another client than the pair before
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"` // of a pair; when shared, of the changes: who takes at once what it gave back has waited for nobody
	P99     float64 `json:"p99_us"`

	// Of a lock that all want, where a contestant tells it: the longest wait, which may not be over yet, and the fewest and
	// the most pairs of a client.
	Longest float64 `json:"longest_us"`
	Least   int     `json:"least"`
	Most    int     `json:"most"`
}

// Main is main of a contestant.
func Main(args []string, all map[string]Contestant) {
	if err := run(args, all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	io.Copy(io.Discard, os.Stdin) // its end is what we wait for
}

func parse(args []string) (s Settings, err error) {
	fs := flag.NewFlagSet("contestant", flag.ContinueOnError)
	fs.StringVar(&s.Addr, "addr", "", "`host:port`, or several with commas, which the clients have in turn")
	fs.StringVar(&s.Lock, "lock", "", "`name` of the kind of lock")
	fs.IntVar(&s.Clients, "clients", 1, "how many clients")
	fs.BoolVar(&s.Shared, "shared", false, "all want one lock")
	warm := fs.Float64("warm", 1, "`seconds` until it counts")
	length := fs.Float64("seconds", 1, "`seconds` that count")
	err = fs.Parse(args)
	s.Warm, s.Length = seconds(*warm), seconds(*length)
	return s, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func run(args []string, all map[string]Contestant) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	c, known := all[s.Lock]
	if !known {
		return fmt.Errorf("no lock %q here", s.Lock)
	}
	r, err := start(s, c)
	if err != nil {
		return err
	}
	if err := r.pass(s.Warm); err != nil {
		return err
	}
	fmt.Println("begin")
	pairs, changes, began := r.pairs.Load(), r.changes.Load(), time.Now()
	r.sampling.Store(true)
	err = r.pass(s.Length)
	r.sampling.Store(false)
	result := Result{Version: c.Version, Pairs: r.pairs.Load() - pairs, Changes: r.changes.Load() - changes, Seconds: time.Since(began).Seconds()}
	if err != nil {
		return err
	}
	result.P50, result.P99 = r.percentiles()
	result.Longest, result.Least, result.Most = r.shares(began)
	return json.NewEncoder(os.Stdout).Encode(result)
}

// loops are the clients of a contestant at work. They end with the process.
type loops struct {
	shared   bool
	failed   chan error // the first failure
	sampling atomic.Bool
	pairs    atomic.Int64
	changes  atomic.Int64
	holders  atomic.Int32
	last     atomic.Int64 // the client of the pair before, from 1
	took     []times      // per client
}

// times are how long the pairs of a client took that ended while sampling.
type times struct {
	mu      sync.Mutex
	all     []time.Duration
	pairs   int
	longest time.Duration
	since   time.Time // the last one ended; zero: none did
}

// start connects all clients, and then lets them loop.
func start(s Settings, c Contestant) (*loops, error) {
	client, err := c.Start(s)
	if err != nil {
		return nil, err
	}
	r := &loops{shared: s.Shared, failed: make(chan error, 1), took: make([]times, s.Clients)}
	pairs := make([]Pair, s.Clients)
	for i := range pairs {
		if pairs[i], err = client(i); err != nil {
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
	}
	for i, p := range pairs {
		go r.loop(p, int64(i+1), &r.took[i])
	}
	return r, nil
}

// loop takes and releases until something fails.
func (r *loops) loop(p Pair, id int64, took *times) {
	for {
		began := time.Now()
		changed, err := r.once(p, id)
		if err != nil {
			select {
			case r.failed <- err:
			default: // the first is enough
			}
			return
		}
		r.pairs.Add(1)
		if changed {
			r.changes.Add(1)
		}
		if r.sampling.Load() {
			took.add(time.Since(began), changed || !r.shared)
		}
	}
}

// add notes a pair; waited says that it is one that had to wait for others, or of a lock that nobody else wants.
func (t *times) add(pair time.Duration, waited bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pairs++
	t.since, t.longest = time.Now(), max(t.longest, pair)
	if waited {
		t.all = append(t.all, pair)
	}
}

// shares returns the longest wait in µs, and the fewest and the most pairs of a client, since they began to count.
func (r *loops) shares(began time.Time) (longest float64, least, most int) {
	least = math.MaxInt
	for i := range r.took {
		t := &r.took[i]
		t.mu.Lock()
		if t.since.IsZero() {
			t.since = began
		}
		longest = max(longest, float64(max(t.longest, time.Since(t.since)))/float64(time.Microsecond))
		least, most = min(least, t.pairs), max(most, t.pairs)
		t.mu.Unlock()
	}
	return longest, least, most
}

// once says whether the shared lock came from another client.
func (r *loops) once(p Pair, id int64) (changed bool, err error) {
	if err := p.Take(); err != nil || p.Release == nil {
		return false, err
	}
	if r.shared {
		if n := r.holders.Add(1); n != 1 {
			return false, fmt.Errorf("%d clients hold the one lock", n)
		}
		changed = r.last.Swap(id) != id
		r.holders.Add(-1)
	}
	return changed, p.Release()
}

// pass lets time pass, and returns early with what fails.
func (r *loops) pass(d time.Duration) error {
	select {
	case err := <-r.failed:
		return err
	case <-time.After(d):
		return nil
	}
}

// percentiles returns what half and 99 of 100 sampled pairs took at most, in µs.
func (r *loops) percentiles() (p50, p99 float64) {
	var all []time.Duration
	for i := range r.took {
		r.took[i].mu.Lock()
		all = append(all, r.took[i].all...)
		r.took[i].mu.Unlock()
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	at := func(p float64) float64 { return float64(all[int(p*float64(len(all)-1))]) / float64(time.Microsecond) }
	return at(0.5), at(0.99)
}

// ErrNotHeld is for a lock whose release says that it was not held.
var ErrNotHeld = errors.New("the lock was not held when it was released")
