package share

import (
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func join(t *testing.T, u *Users, name string) *User {
	t.Helper()
	one, err := u.Join(name)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func TestClients(t *testing.T) {
	u := New(Limits{Clients: 2}, slog.New(slog.DiscardHandler))
	a := join(t, u, "a")
	join(t, u, "a")
	if _, err := u.Join("a"); err != errClients {
		t.Error(err)
	}
	join(t, u, "b")
	for range 3 {
		u.JoinNobody("10.0.0.1")
	}
	u.Leave(a)
	join(t, u, "a")
	u.Set(Limits{})
	join(t, u, "a")
}

func TestLocksAndWaits(t *testing.T) {
	u := New(Limits{Locks: 2, Waits: 1}, slog.New(slog.DiscardHandler))
	a, b := join(t, u, "a"), join(t, u, "b")
	for _, one := range []*User{a, b} {
		for range 2 {
			if err := one.Ask(); err != nil {
				t.Fatal(err)
			}
		}
		if err := one.Ask(); err != errLocks {
			t.Error(err)
		}
		one.hold(1)
		one.answered()
		if err := one.Ask(); err != errLocks {
			t.Error("of one held and one asked for:", err)
		}
		one.hold(-1)
		if err := one.Ask(); err != nil {
			t.Error(err)
		}
		if err := one.Wait(); err != nil {
			t.Error(err)
		}
		if err := one.Wait(); err != errWaits {
			t.Error(err)
		}
		one.waited()
		if err := one.Wait(); err != nil {
			t.Error(err)
		}
	}
	u.Set(Limits{})
	if a.Ask() != nil || a.Wait() != nil {
		t.Error("there is no limit any more")
	}
}

// A named owner's lease counts once for the user as whom the owner was named, whatever else that client asks for.
func TestLease(t *testing.T) {
	u := New(Limits{Locks: 1}, slog.New(slog.DiscardHandler))
	var a, b Client
	a.Move(join(t, u, "a"), 0)
	b.Move(join(t, u, "b"), 0)
	if err := a.Ask(); err != nil {
		t.Fatal(err)
	}
	l := a.Lease()
	a.Answered()
	if !a.Counts(l) || b.Counts(l) {
		t.Error("it counts for another user")
	}
	if a.Ask() != errLocks || b.Ask() != nil {
		t.Error("it does not count for its user, or for another one, too")
	}
	l.End()
	if err := a.Ask(); err != nil {
		t.Error(err)
	}
	a.Answered()
	_ = a.Lease() // without Ask
	if a.Ask() != errLocks {
		t.Error("it does not count")
	}
	var nobody Client
	nobody.Lease().End()
}

func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(Limits{}, slog.New(slog.DiscardHandler))
		a, b := join(t, u, "a"), join(t, u, "b")
		may := func(one *User) (n int) {
			for range 1000 {
				if one.Command() == nil {
					n++
				}
			}
			return n
		}
		if n := may(a); n != 1000 {
			t.Error(n, "without a limit")
		}
		u.Set(Limits{Commands: 100})
		if n := may(a); n != 100 {
			t.Error(n)
		}
		if n := may(b); n != 100 {
			t.Error(n, "of another user")
		}
		time.Sleep(time.Second / 2)
		if n := may(a); n != 50 {
			t.Error(n, "after half a second")
		}
		u.Leave(a)
		if n := may(join(t, u, "a")); n != 0 {
			t.Error(n, "with a new connection")
		}
	})
}

// Commands that are not refused wait for their turn, whatever connection they come by, and others' do not.
func TestOwe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(Limits{Commands: 100}, slog.New(slog.DiscardHandler))
		for _, one := range []*User{join(t, u, "a"), join(t, u, "b"), u.JoinNobody("10.0.0.1"), u.JoinNobody("10.0.0.2")} {
			for range 100 {
				if d := one.Owe(); d != 0 {
					t.Fatalf("%v within the first second's worth", d)
				}
			}
			for i := range 50 {
				if d, want := one.Owe(), time.Duration(i+1)*10*time.Millisecond; d != want {
					t.Fatalf("one too many waits %v, want %v", d, want)
				}
			}
			if one.Command() == nil {
				t.Error("another one is served before those that wait")
			}
		}
		time.Sleep(time.Second)
		if d := join(t, u, "a").Owe(); d != 0 {
			t.Errorf("%v a second later", d)
		}
		u.Set(Limits{})
		if d := join(t, u, "a").Owe(); d != 0 {
			t.Errorf("%v without a limit", d)
		}
	})
}

// However many users come and go, few are remembered, and those that matter are.
func TestForgotten(t *testing.T) {
	u := New(Limits{}, slog.New(slog.DiscardHandler))
	a, b := join(t, u, "a"), join(t, u, "b")
	b.hold(1)
	u.Leave(b)
	for i := range 10 * idleKept {
		u.Leave(join(t, u, strconv.Itoa(i)))
	}
	if n := len(u.byName); n > 2*idleKept || join(t, u, "a") != a || join(t, u, "b") != b {
		t.Error(n, "users")
	}
}

var sink error

// BenchmarkNoLimit is what a command costs more where there is no limit.
func BenchmarkNoLimit(b *testing.B) {
	u, _ := New(Limits{}, slog.New(slog.DiscardHandler)).Join("a")
	for b.Loop() {
		sink = u.Command()
	}
}
