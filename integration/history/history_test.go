package history

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

var (
	seed    = flag.Uint64("seed", 0, "of the first round; the next ones count on from it. 0: the time")
	length  = flag.Duration("duration", 1500*time.Millisecond, "how long each profile works, checks not counted")
	each    = flag.Duration("round", 10*time.Second, "how long one round works at most")
	only    = flag.String("profile", "", "run only these, with commas")
	binary  = flag.String("lockproxy", "", "the lockproxy to test; empty: built from this tree")
	out     = flag.String("out", "", "where the history of a failed round goes; empty: the folder for temporary files")
	again   = flag.String("recheck", "", "a history.jsonl: it is checked once more, as one of the profile that is named")
	mutants = flag.Bool("mutations", false, "run the mutations")
	figures = flag.String("figures", "", "a file to which each round adds its figures, as a line of JSON")
	proxies = flag.Int("proxies", 0, "so many proxies; 0: the profile's own number")
	clients = flag.Int("clients", 0, "so many clients in all, and more locks for more of them; 0: the profile's own number")
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// lockproxy is the path of the lockproxy under test.
func lockproxy(t testing.TB) string {
	if *binary != "" {
		return *binary
	}
	return harness.Binary(t)
}

// Histories of random workloads keep every promise, whatever is hurt meanwhile.
func TestHistory(t *testing.T) {
	testredis.NeedsProcesses(t)
	first := *seed
	if first == 0 {
		first = uint64(time.Now().Unix())
	}
	for _, p := range profiles {
		if *only == "" && p.named || *only != "" && !strings.Contains(","+*only+",", ","+p.name+",") {
			continue
		}
		p = p.sized(*proxies, *clients)
		t.Run(p.name, func(t *testing.T) {
			var total tally
			began := time.Now()
			more := func() bool { return p.effects && total.lostUnfenced == 0 && total.rounds < 8 } // on a slow machine
			for left, s := max(*length, p.least), first; left > 0 || more(); left, s = left-*each, s+1 {
				t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
					r, wrong := playRound(t, p, s, max(min(left, *each), time.Second))
					total.add(r.tally)
					r.note(len(wrong))
					if len(wrong) > 0 {
						t.Fatal(r.report(wrong))
					}
				})
				if t.Failed() {
					return
				}
			}
			t.Logf("%s: seed %d, %v in %v", p.name, first, total, time.Since(began).Round(time.Second))
			switch {
			case total.grants == 0:
				t.Error("nothing was granted: this run says nothing")
			case p.effects && total.lostUnfenced == 0:
				t.Error("no unfenced write was lost: this run has no power")
			}
		})
	}
}

// A history that was written down is checked once more, when -recheck names one.
func TestRecheck(t *testing.T) {
	if *again == "" {
		t.Skip("no -recheck")
	}
	ops, err := history.ReadFile(*again)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range profiles {
		if p.name != *only {
			continue
		}
		if p.named {
			t.Skip("a history does not have which failovers there were")
		}
		for key, some := range history.ByKey(ops) {
			sure, watchdog := p.drifted(some)
			wrong := append(history.Intervals(key, sure, watchdog), history.Tokens(key, some)...)
			if p.nodes == 0 {
				v, _ := history.Legal(key, some, watchdog, !p.strict)
				wrong = append(wrong, v...)
			}
			if len(wrong) > 0 {
				t.Error((&round{Crew: &history.Crew{Recorder: history.NewRecorder()}, p: p}).report(wrong))
			}
		}
	}
}
