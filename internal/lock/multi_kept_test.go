package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/share"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What a named owner is told of a lock by another connection, while a MULTILOCK of its waits for another one, holds whatever comes of the MULTILOCK.
func TestMultiLockBesideItsOwner(t *testing.T) {
	const long = 120_000
	type how struct {
		name    string
		does    func(c *Client) error
		watched bool
	}
	renews := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			return c.Renew(context.Background(), RenewRequest{Key: "k1", Owner: "o", Lease: lease})
		}
	}
	locks := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			_, err := c.Lock(context.Background(), Request{Key: "k1", Owner: "o", Lease: lease})
			return err
		}
	}
	anew := func(c *Client) error {
		if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "k1", Owner: "o"}); err != nil {
			return err
		}
		return locks(long)(c)
	}
	for _, h := range []how{
		{"RENEW EX", renews(long), false}, {"RENEW", renews(0), true}, {"LOCK EX", locks(long), false}, {"LOCK", locks(0), true}, {"UNLOCK, LOCK EX", anew, false},
	} {
		for _, through := range []string{"one", "two"} {
			for _, before := range []int64{0, 30_000} {
				for _, waits := range []time.Duration{7 * time.Second, 40 * time.Second} {
					for _, succeeds := range []bool{false, true} {
						if succeeds && h.name == "UNLOCK, LOCK EX" {
							continue // one of its locks was given back meanwhile
						}
						t.Run(fmt.Sprintf("%s through %s, before %d, waits %v, succeeds %v", h.name, through, before, waits, succeeds), func(t *testing.T) {
							inBubble(t, func(t *testing.T, w *world.World) {
								s := w.NewNode(bubbleAddr)
								engines := map[string]*Manager{"one": bubbleEngine(t, w, s, "one", Options{}), "two": bubbleEngine(t, w, s, "two", Options{})}
								a, _ := client(engines[through])
								b, _ := client(engines["one"])
								other, _ := client(engines["one"])
								mustLock(t, other, Request{Key: "k2"})
								if before > 0 {
									mustLock(t, a, Request{Key: "k1", Owner: "o", Lease: before})
								}
								r := Request{Owner: "o", Blocks: true, Block: waits.Milliseconds()}
								if succeeds {
									r.Lease = 5000
								}
								done := make(chan error, 1)
								go func() { _, err := b.MultiLock(context.Background(), []string{"k1", "k2"}, r); done <- err }()
								time.Sleep(5 * time.Second)
								if err := h.does(a); err != nil {
									t.Fatal(err)
								}
								time.Sleep(waits - 6*time.Second)
								if succeeds {
									mustUnlock(t, other, UnlockRequest{Key: "k2"}, true)
								}
								if err := <-done; succeeds && err != nil || !succeeds && !errors.Is(err, ErrNotAcquired) {
									t.Fatal(err)
								}
								time.Sleep(30 * time.Second)
								if ttl := pttl(t, s, "k1"); ttl <= 0 || !h.watched && ttl < long-(waits+30*time.Second).Milliseconds() {
									t.Errorf("k1 has %d ms", ttl)
								}
								time.Sleep(2 * long * time.Millisecond)
								if ttl := pttl(t, s, "k1"); h.watched != (ttl > 0) {
									t.Errorf("much later k1 has %d ms", ttl)
								}
							})
						})
					}
				}
			}
		}
	}
}

// A hold that a MULTILOCK has come upon lives by the connection that had it before when that MULTILOCK has failed, also when this connection
// closes before that is known.
func TestMultiLockLeavesItsOwnersConnection(t *testing.T) {
	for _, lease := range []int64{0, 300_000} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("EX %d, closes early %v", lease, early), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", Options{})
					a, lost := client(m)
					b, _ := client(m)
					users := share.New(share.Limits{Locks: 1}, testLog())
					var of [2]*share.User
					for i, c := range []*Client{a, b} {
						of[i], _ = users.Join(fmt.Sprint("user", i))
						c.SetUser(of[i])
					}
					mustLock(t, a, Request{Key: "k1", Owner: "o", Lease: lease})
					taken := &multiLock{c: b, r: Request{Owner: "o"}, began: time.Now()}
					if err := taken.take(context.Background(), "k1", true); err != nil {
						t.Fatal(err)
					}
					if a.Held() != 0 || b.Held() != 1 {
						t.Fatal(a.Held(), b.Held())
					}
					if early {
						b.Close(Gone)
					}
					taken.giveBack()
					if !early {
						b.Close(Gone)
					}
					if a.Held() != 1 || b.Held() != 0 {
						t.Error("they hold", a.Held(), b.Held())
					}
					if of[0].Ask() == nil || of[1].Ask() != nil {
						t.Error("the lock counts for the wrong user")
					}
					time.Sleep(2 * time.Minute)
					if ttl := pttl(t, s, "k1"); ttl <= 0 || lost.reasons() != "" {
						t.Error(ttl, lost.reasons())
					}
					a.Close(Gone)
					eventually(t, 4*time.Minute, "it ends with that connection", func() bool { return pttl(t, s, "k1") < 0 })
				})
			})
		}
	}
}

// A MULTILOCK that fails on another proxy than the owner's has the hold renewed there, for as long as its own connection lives, unless the
// owner is named again.
func TestMultiLockElsewhereTakesTheRenewals(t *testing.T) {
	for _, again := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
			b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
			other, _ := client(b.m)
			mustLock(t, other, Request{Key: "k2"})
			mustLock(t, a, Request{Key: "k1", Owner: "o"})
			if _, err := b.MultiLock(context.Background(), []string{"k1", "k2"}, Request{Owner: "o", Blocks: true, Block: 60_000}); !errors.Is(err, ErrNotAcquired) {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if pttl(t, s, "k1") <= 0 {
				t.Fatal("not renewed while the connection of the MULTILOCK lives")
			}
			if again {
				mustLock(t, a, Request{Key: "k1", Owner: "o"})
			}
			b.Close(Gone)
			time.Sleep(2 * time.Minute)
			if renewed := pttl(t, s, "k1") > 0; renewed != again {
				t.Errorf("named again %v, renewed %v", again, renewed)
			}
		})
	}
}

// A lock that its owner has given back through another proxy, and takes again here before the watchdog has noticed, is a new hold: nothing of
// the former one counts any more.
func TestTakenAgainAfterAnUnlockElsewhere(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range []Kind{Plain, Read, Write} {
			for how, test := range map[string]struct {
				verb  func(c *Client, r Request) error
				fails bool
			}{
				"LOCK EX": {func(c *Client, r Request) error {
					r.Key, r.Lease = "k1", 20_000
					_, err := c.Lock(context.Background(), r)
					return err
				}, false},
				"MULTILOCK EX": {func(c *Client, r Request) error { r.Lease = 20_000; return multi(c, r, "k1", "k3") }, false},
				"a MULTILOCK that fails": {func(c *Client, r Request) error {
					r.Blocks, r.Block = true, 15_000
					return multi(c, r, "k1", "k2")
				}, true},
			} {
				t.Run(fmt.Sprint(how, " ", kind, " quorum ", votes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, lost := client(m)
						b, _ := client(n)
						r := Request{Owner: "o", Kind: kind}
						mustLock(t, b, Request{Key: "k2", Kind: opposite(kind)})
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Owner: "o"}, true)
						time.Sleep(time.Second)
						if err := test.verb(a, r); test.fails != (err != nil) {
							t.Fatal(err)
						}
						if test.fails == there("k1") {
							t.Error("it is there:", there("k1"))
						}
						time.Sleep(15 * time.Second)
						if test.fails == there("k1") {
							t.Error("15 s later it is there:", there("k1"))
						}
						if time.Sleep(40 * time.Second); there("k1") {
							t.Error("it is renewed")
						}
						if got := lost.reasons(); got != "" {
							t.Errorf("told %q", got)
						}
					})
				})
			}
		}
	}
}

// Such a new hold that nobody renews is not taken for a renewed one when its owner is named at the other proxy.
func TestTakenAgainAndNamedElsewhere(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range []Kind{Plain, Read, Write} {
			for name, verb := range map[string]func(c *Client, r Request) error{
				"MULTILOCK EX":           func(c *Client, r Request) error { r.Lease = 5000; return multi(c, r, "k1", "k3") },
				"a MULTILOCK that fails": func(c *Client, r Request) error { r.Blocks, r.Block = true, 100; return multi(c, r, "k1", "k2") },
				"REPLICAS": func(c *Client, r Request) error {
					r.Key, r.Replicas = "k1", 1
					_, err := c.Lock(context.Background(), r)
					return err
				},
			} {
				t.Run(fmt.Sprint(name, " ", kind, " quorum ", votes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, lost := client(m)
						b, _ := client(n)
						r := Request{Owner: "o", Kind: kind}
						mustLock(t, b, Request{Key: "k2", Kind: opposite(kind)})
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Owner: "o"}, true)
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: 20_000})
						err := verb(b, r)
						if time.Sleep(18 * time.Second); !there("k1") {
							t.Error("it has ended early;", err)
						}
						if time.Sleep(30 * time.Second); there("k1") {
							t.Error("it is renewed;", err)
						}
						if got := lost.reasons(); got != "" {
							t.Errorf("told %q", got)
						}
					})
				})
			}
		}
	}
}

// Such a new hold is this proxy's: it is followed until its lease is over, and given back if too few replicas have it.
func TestTakenAgainIsFollowed(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range []Kind{Plain, Read, Write} {
			for _, replicas := range []int64{0, 1} {
				if votes && replicas > 0 {
					continue // refused
				}
				t.Run(fmt.Sprint(kind, " quorum ", votes, " REPLICAS ", replicas), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, _ := client(m)
						b, _ := client(n)
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Owner: "o"}, true)
						_, err := a.Lock(context.Background(), Request{Key: "k1", Owner: "o", Kind: kind, Lease: 60_000, Replicas: replicas})
						if replicas > 0 {
							if !isCode(err, "NOREPLICAS") || there("k1") {
								t.Error("it is there:", there("k1"), err)
							}
							return
						}
						if time.Sleep(50 * time.Second); err != nil || m.Stats().Held != 1 {
							t.Error("it is no longer known", err)
						}
						time.Sleep(15 * time.Second)
						if _, err := a.Unlock(context.Background(), UnlockRequest{Key: "k1", Owner: "o", Side: kind}); !isCode(err, "LOCKLOST") {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

// opposite is a kind of lock that one of that kind waits for.
func opposite(kind Kind) Kind {
	return map[Kind]Kind{Plain: Plain, Read: Write, Write: Write}[kind]
}

// twoEngines are two proxies of one Redis, or of one quorum. there says whether any node has a lock.
func twoEngines(t *testing.T, w *world.World, votes bool) (m, n *Manager, there func(key string) bool) {
	t.Helper()
	if votes {
		ns := bubbleNodes(w, 3)
		times := quorum.Options{NodeTimeout: 200 * time.Millisecond} // as by default
		return ns.engine(t, "one", 0, Options{}, times), ns.engine(t, "two", 0, Options{}, times), func(key string) bool { return ns.holding(t, key) > 0 }
	}
	s := w.NewNode(bubbleAddr)
	return bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{}), func(key string) bool { return pttl(t, s, key) > 0 }
}

// What a verb that fails has taken is given back, also where its owner has given the lock back through another proxy shortly before, so that
// there was a registration of that; and saying it again does not take the lock for one that another connection has renewed.
func TestGivenBackAfterAnEmptiedRegistration(t *testing.T) {
	for _, kind := range []Kind{Plain, Read, Write} {
		for name, fails := range map[string]struct {
			verb func(c *Client, r Request) error
			code string
		}{
			"MULTILOCK": {func(c *Client, r Request) error {
				_, err := c.MultiLock(context.Background(), []string{"k1", "k2"}, r)
				return err
			}, "nil"},
			"MULTILOCK EX": {func(c *Client, r Request) error {
				r.Lease = 5000
				_, err := c.MultiLock(context.Background(), []string{"k1", "k2"}, r)
				return err
			}, "nil"},
			"REPLICAS": {func(c *Client, r Request) error {
				r.Key, r.Replicas = "k1", 1
				_, err := c.Lock(context.Background(), r)
				return err
			}, "NOREPLICAS"},
		} {
			for _, first := range []int64{0, 20_000} { // the lease of the hold whose registration is emptied
				t.Run(fmt.Sprint(kind, " ", name, " ", first), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
						b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
						other, _ := client(b.m)
						mustLock(t, other, Request{Key: "k2", Kind: opposite(kind)})
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: first})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Owner: "o"}, true)
						for range 3 {
							if err := fails.verb(a, Request{Owner: "o", Kind: kind}); outcomeWord(err) != fails.code {
								t.Fatal(err)
							}
							if ttl := pttl(t, s, "k1"); ttl > 0 {
								t.Error("it is held still, for", ttl)
							}
							time.Sleep(time.Second)
						}
						time.Sleep(2 * time.Minute)
						if ttl := pttl(t, s, "k1"); ttl > 0 {
							t.Error("it is renewed, for", ttl)
						}
					})
				})
			}
		}
	}
}

// A hold that is renewed for another MULTILOCK of its owner alone, or by nobody any more, has the lease that is asked for, and lasts for as
// long as one of them waits.
func TestMultiLockBesideAnother(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, b := range []struct {
			name          string
			first, second int64 // leases of the two
			succeeds      bool  // the first, after the second
			least, most   time.Duration
		}{
			{"fails", 5000, 5000, false, 5 * time.Second, 45 * time.Second},
			{"succeeds", 5000, 5000, true, 12 * time.Second, 45 * time.Second},
			{"fails, and asks for none", 0, 5000, false, 5 * time.Second, 45 * time.Second},
			{"succeeds, and asks for none", 0, 5000, true, 5 * time.Minute, time.Hour},
			{"the second asks for longer", 5000, 59_000, true, 57 * time.Second, 90 * time.Second},
		} {
			t.Run(fmt.Sprintf("%s, votes %v", b.name, votes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					m, there := oneOrQuorum(t, w, votes)
					conn1, _ := client(m)
					conn2, _ := client(m)
					other, _ := client(m)
					mustLock(t, other, Request{Key: "b"})
					done := make(chan error, 1)
					go func() {
						_, err := conn1.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "X", Lease: b.first, Blocks: true, Block: 10_000})
						done <- err
					}()
					time.Sleep(time.Second)
					began := time.Now()
					if _, err := conn2.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: b.second}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(7 * time.Second)
					if b.succeeds {
						mustUnlock(t, other, UnlockRequest{Key: "b"}, true)
					}
					if err := <-done; b.succeeds != (err == nil) {
						t.Fatal(err)
					}
					for there("a") && time.Since(began) < b.most {
						time.Sleep(100 * time.Millisecond)
					}
					if took := time.Since(began); took < b.least || took >= b.most && b.most < time.Hour {
						t.Errorf("it ended after %v", took)
					}
				})
			})
		}
		t.Run(fmt.Sprintf("its connection has closed, votes %v", votes), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				m, there := oneOrQuorum(t, w, votes)
				conn1, _ := client(m)
				conn2, _ := client(m)
				mustLock(t, conn1, Request{Key: "a", Owner: "X"})
				conn1.Close(Gone)
				if _, err := conn2.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: 5000}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(40 * time.Second)
				if there("a") {
					t.Error("it is renewed for ever")
				}
			})
		})
	}
}

// oneOrQuorum is an engine on one Redis, or on a quorum, and says whether a lock is there.
func oneOrQuorum(t *testing.T, w *world.World, votes bool) (m *Manager, there func(key string) bool) {
	t.Helper()
	if votes {
		ns := bubbleNodes(w, 3)
		return ns.engine(t, "one", 0, Options{}), func(key string) bool { return ns.holding(t, key) > 0 }
	}
	s := w.NewNode(bubbleAddr)
	return bubbleEngine(t, w, s, "one", Options{}), func(key string) bool { return pttl(t, s, key) > 0 }
}

// Each lock of a MULTILOCK counts once, and a MULTILOCK that is refused counts once.
func TestMultiLockCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{})
		a, _ := client(m)
		b, _ := client(m)
		if _, err := a.MultiLock(context.Background(), []string{"a", "b"}, Request{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.MultiLock(context.Background(), []string{"a", "c"}, Request{}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		if s := m.Stats(); s.Granted != 2 || s.Refused != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// What a MULTILOCK that has failed found with an end has it again, however long it takes to give back what was taken.
func TestMultiLockRestoresLate(t *testing.T) {
	for how, c := range map[string]struct {
		owner string
		away  time.Duration
		again bool // its owner sends LOCK again meanwhile
		keys  []string
	}{
		"a named owner, Redis stalls":  {"o", 7 * time.Second, false, []string{"k", "l", "m"}},
		"a connection, Redis stalls":   {"", 7 * time.Second, false, []string{"k", "l", "m"}},
		"a named owner, Redis is away": {"o", 20 * time.Second, false, []string{"k", "m"}},
		"a connection, Redis is away":  {"", 20 * time.Second, false, []string{"k", "m"}},
		"a named owner, behind a LOCK": {"o", 20 * time.Second, true, []string{"k", "m"}},
	} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, s, "one", Options{})
				link := w.Proxy("one").Link(s.Addr())
				other, _ := client(m)
				mustLock(t, other, Request{Key: "m"})
				b, _ := client(m)
				a := b
				if c.owner != "" {
					a, _ = client(m)
				}
				leased := Request{Key: "k", Owner: c.owner, Lease: 60_000}
				mustLock(t, a, leased)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() {
					_, err := b.MultiLock(ctx, c.keys, Request{Owner: c.owner, Self: true, Blocks: true})
					done <- err
				}()
				time.Sleep(time.Second)
				link.Swallow(world.Replies)
				if c.again {
					go func() { _, _ = a.Lock(context.Background(), leased) }()
					time.Sleep(10 * time.Millisecond)
				}
				cancel()
				if c.away > 10*time.Second {
					time.AfterFunc(100*time.Millisecond, link.Cut)
				}
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				time.Sleep(c.away - patience)
				link.Cut()
				link.Heal()
				time.Sleep(2 * time.Minute)
				if ttl := pttl(t, s, "k"); ttl > 0 {
					t.Errorf("k is renewed: it has %d ms", ttl)
				}
				if ttl := pttl(t, s, "l"); ttl > 0 {
					t.Errorf("l has %d ms", ttl)
				}
			})
		})
	}
}
