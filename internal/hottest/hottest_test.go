package hottest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Of names that come as often as names do, few of them most of the time, the hottest are found, however many there are, and the counts are
// within their bounds.
func TestHottestAreFound(t *testing.T) {
	for _, names := range []uint64{10, Most, 100000} {
		var n Names
		real := map[string]int64{}
		dice := rand.New(rand.NewPCG(1, names))
		zipf := rand.NewZipf(dice, 1.3, 1, names-1)
		for range 200000 {
			key := strconv.FormatUint(zipf.Uint64(), 10)
			real[key]++
			n.Wait(0, key)
		}
		for i, e := range n.Top(5) {
			if e.Key != strconv.Itoa(i) {
				t.Errorf("of %d names number %d is %+v", names, i, e)
			}
		}
		all := n.Top(Most + 1)
		if len(all) != min(len(real), Most) {
			t.Errorf("%d of %d names are kept", len(all), len(real))
		}
		for _, e := range all {
			if r := real[e.Key]; e.Waits < r || e.Waits-e.Over > r {
				t.Errorf("%+v of %d waits", e, r)
			}
		}
	}
}

// Names are told apart by database, long ones by their beginning, and what takes another's place begins with no time.
func TestNames(t *testing.T) {
	var n Names
	long := strings.Repeat("x", longest)
	for _, name := range []Name{{0, "a"}, {1, "a"}, {0, long + "1"}, {0, long + "2"}} {
		n.Wait(name.DB, name.Key)
		n.Waited(name.DB, name.Key, time.Second)
	}
	n.Waited(0, "nosuch", time.Second)
	if got := fmt.Sprint(n.Top(10)); got != fmt.Sprintf("[{{0 %s} 2 0 2s} {{0 a} 1 0 1s} {{1 a} 1 0 1s}]", long) {
		t.Error(got)
	}
	n.Reset()
	if got := n.Top(10); len(got) != 0 {
		t.Error(got)
	}
	for i := range Most + 1 {
		n.Wait(0, strconv.Itoa(i))
		n.Waited(0, strconv.Itoa(i), time.Second)
	}
	n.Wait(0, "last")
	n.Wait(0, "last")
	if e := n.Top(1)[0]; e.Key != "last" || e.Waits-e.Over != 2 || e.Waited != 0 || len(n.Top(1000)) != Most {
		t.Errorf("%+v", e)
	}
}
