package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A hold that two MULTILOCKs have come upon, which both fail, lives by the connection that had it before the first of them, in whichever
// order they fail, and whenever their connections close.
func TestMultiLocksLeaveTheirOwnersConnection(t *testing.T) {
	const neither, early, between, late = "neither", "early", "between", "late"
	for _, lease := range []int64{0, 150_000} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			for _, closes := range [][2]string{{late, late}, {early, late}, {late, early}, {early, early}, {between, between}, {neither, early}} {
				t.Run(fmt.Sprintf("EX %d, order %v, close %v", lease, order, closes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						m := bubbleEngine(t, w, s, "one", Options{})
						a, lost := client(m)
						mustLock(t, a, Request{Key: "k", Owner: "o", Lease: lease})
						var b [2]*multiLock
						for i := range b {
							c, _ := client(m)
							b[i] = &multiLock{c: c, r: Request{Owner: "o"}, began: time.Now()}
							if err := b[i].take(context.Background(), "k", true); err != nil {
								t.Fatal(err)
							}
						}
						closeThose := func(when string) {
							for i := range b {
								if closes[i] == when {
									b[i].c.Close(Gone)
								}
							}
						}
						closeThose(early)
						b[order[0]].giveBack()
						closeThose(between)
						b[order[1]].giveBack()
						closeThose(late)
						if a.Held() != 1 || b[0].c.Held() != 0 || b[1].c.Held() != 0 {
							t.Error("they hold", a.Held(), b[0].c.Held(), b[1].c.Held())
						}
						time.Sleep(2 * time.Minute)
						if ttl := pttl(t, s, "k"); ttl <= 0 || lost.reasons() != "" {
							t.Error(ttl, lost.reasons())
						}
						a.Close(Gone)
						time.Sleep(time.Minute)
						if pttl(t, s, "k") > 0 {
							t.Error("it does not end with that connection")
						}
					})
				})
			}
		}
	}
}

// It lives by the connection of the MULTILOCK that succeeds, if one does, or that has named its owner since.
func TestMultiLockThatFailsBesideAnother(t *testing.T) {
	for _, how := range []string{"the first succeeds", "the second succeeds", "LOCK", "LOCK EX", "RENEW", "RENEW EX"} {
		for _, lease := range []int64{0, 300_000} {
			t.Run(fmt.Sprintf("%s, EX %d", how, lease), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", Options{})
					a, _ := client(m)
					mustLock(t, a, Request{Key: "k", Owner: "o", Lease: lease})
					var b [2]*multiLock
					for i := range b {
						c, _ := client(m)
						b[i] = &multiLock{c: c, r: Request{Owner: "o"}, began: time.Now()}
						if err := b[i].take(context.Background(), "k", true); err != nil {
							t.Fatal(err)
						}
					}
					keeps, _ := client(m)
					renew := RenewRequest{Key: "k", Owner: "o"}
					switch how {
					case "the first succeeds":
						keeps = b[0].c
						m.holds.endLending(b[0], true)
						b[1].giveBack()
					case "the second succeeds":
						keeps = b[1].c
						m.holds.endLending(b[1], true)
						b[0].giveBack()
					case "LOCK":
						mustLock(t, keeps, Request{Key: "k", Owner: "o"})
					case "LOCK EX":
						mustLock(t, keeps, Request{Key: "k", Owner: "o", Lease: 300_000})
					case "RENEW EX":
						renew.Lease = 300_000
						fallthrough
					case "RENEW":
						if err := keeps.Renew(context.Background(), renew); err != nil {
							t.Fatal(err)
						}
					}
					if keeps != b[0].c && keeps != b[1].c {
						b[0].giveBack()
						b[1].giveBack()
					}
					if keeps.Held() != 1 {
						t.Error("it is another connection's")
					}
					time.Sleep(2 * time.Minute)
					if pttl(t, s, "k") <= 0 {
						t.Error("it has ended")
					}
				})
			})
		}
	}
}
