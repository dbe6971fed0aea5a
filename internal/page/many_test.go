package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// manyOfThree are three pages that have ten thousand locks together; the first asks the others.
func manyOfThree(t testing.TB) (*Page, *member) {
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
	want := "200 of " + display.Number(3*each) + " locks"
	for end := time.Now().Add(10 * time.Second); !strings.Contains(drawn(t, p), want); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s are never shown", want)
		}
	}
	return p, m
}

// drawn is the first page.
func drawn(t testing.TB, p *Page) string {
	return ask(t, p, http.MethodGet, home+"/", "", "Authorization", "Bearer "+fleetToken).Body.String()
}

// Ten thousand locks of three proxies are shown by one of them.
func TestManyLocksOfThreeProxies(t *testing.T) { manyOfThree(t) }

// BenchmarkThreeProxies is what ten thousand locks of three proxies cost: to ask two of them, answers included, and to
// draw all.
func BenchmarkThreeProxies(b *testing.B) {
	p, m := manyOfThree(b)
	b.Run("ask", func(b *testing.B) {
		for b.Loop() {
			for _, other := range m.neighbours {
				p.others.mu.Lock()
				p.others.by[other.ID].asking = make(chan struct{})
				p.others.mu.Unlock()
				p.askOne(other)
			}
		}
	})
	b.Run("draw", func(b *testing.B) {
		for b.Loop() {
			p.look.taken = time.Time{}
			drawn(b, p)
		}
	})
}
