package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// cpu is the processor time of this process.
func cpu(t testing.TB) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// Ten thousand locks of three proxies are drawn at once, and looking at them costs little. The figures are printed: this
// process does the work of all three.
func TestManyLocksOfThreeProxies(t *testing.T) {
	const each = 3334
	list := func(n int) (all []lock.Entry) {
		for i := range each {
			e := held(fmt.Sprintf("orders:%d:%06d", n, i), "10.1.1.1:40000")
			e.Owner, e.User = fmt.Sprintf("%08d-1111-1111-1111-111111111111:%d", n, i), "app"
			all = append(all, e)
		}
		return all
	}
	p, m := memberPage(t, &engine{list: list(0)}, selfID, fleetToken)
	for n, id := range []string{otherID, "33333333-3333-3333-3333-333333333333"} {
		_, other := memberPage(t, &engine{list: list(n + 1)}, id, fleetToken)
		m.neighbours = append(m.neighbours, other.self)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		text := ask(t, p, "GET", home+"/", "", "Authorization", "Bearer "+fleetToken).Body.String()
		if strings.Contains(text, "200 of "+display.Number(3*each)+" locks") {
			break
		}
		if time.Now().After(end) {
			t.Fatal(text[:2000])
		}
	}
	used := cpu(t)
	const rounds = 10
	for range rounds {
		for _, other := range m.neighbours {
			p.others.mu.Lock()
			p.others.by[other.ID].asking = make(chan struct{})
			p.others.mu.Unlock()
			p.askOne(other)
		}
	}
	t.Logf("to ask both, and to answer, takes %v of a processor", (cpu(t)-used)/rounds)
	used = cpu(t)
	for range rounds {
		p.look.taken = time.Time{}
		ask(t, p, "GET", home+"/", "", "Authorization", "Bearer "+fleetToken)
	}
	t.Logf("to draw all takes %v of a processor", (cpu(t)-used)/rounds)
	var worst time.Duration
	began, asked := time.Now(), 0
	used = cpu(t)
	for time.Since(began) < 10*time.Second {
		at := time.Now()
		w := ask(t, p, "GET", home+"/parts?page=/", "", "Authorization", "Bearer "+fleetToken)
		worst = max(worst, time.Since(at))
		var told news
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil {
			t.Fatal(err)
		}
		asked++
		time.Sleep(time.Duration(told.Next) * time.Millisecond)
	}
	took := time.Since(began)
	t.Logf("asked %d times in %v; the slowest of them took %v; the three took %.1f %% of a processor", asked, took, worst, 100*float64(cpu(t)-used)/float64(took))
	p.others.mu.Lock()
	defer p.others.mu.Unlock()
	for _, one := range p.others.by {
		t.Logf("reading what %s tells took %v", one.ID, one.cost)
	}
}
