package share

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestAccounts: each limit counts what it has refused, and users who need attention come first.
func TestAccounts(t *testing.T) {
	u := New(Limits{Clients: 1, Locks: 1, Waits: 1}, slog.New(slog.DiscardHandler))
	var holder Client
	one, _ := u.Join("one")
	holder.Move(one, 0)
	for range 2 {
		u.Join("one")
	}
	for range 3 {
		if holder.Ask() == nil {
			holder.Held(1)
		}
	}
	for range 4 {
		_ = holder.Wait()
	}
	u.JoinNobody("10.0.0.1")
	u.Leave(u.JoinNobody("10.0.0.2"))
	gone, _ := u.Join("gone")
	u.Leave(gone)
	want := []Account{
		{User: "one", Clients: Use{1, 1, 2}, Commands: Use{-1, 0, 0}, Locks: Use{1, 1, 2}, Waits: Use{1, 1, 3}},
		{Address: "10.0.0.1", Clients: Use{1, 0, 0}, Commands: Use{-1, 0, 0}, Locks: Use{0, 1, 0}, Waits: Use{0, 1, 0}},
	}
	if got := u.Accounts(10); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := u.Accounts(1); len(got) != 1 || got[0].User != "one" {
		t.Errorf("of one: %v", got)
	}
}

// TestCommandsInASecond: the commands of the last whole second are told, with those that had to wait for their turn,
// and nothing while there is no limit.
func TestCommandsInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(Limits{Commands: 3}, slog.New(slog.DiscardHandler))
		one, _ := u.Join("one")
		told := func() Use { return u.Accounts(1)[0].Commands }
		for range 5 {
			if one.Command() != nil {
				one.Owe()
			}
		}
		if got := told(); got != (Use{0, 3, 2}) {
			t.Errorf("in the same second: %v", got)
		}
		time.Sleep(time.Second)
		if got := told(); got != (Use{5, 3, 2}) {
			t.Errorf("a second later: %v", got)
		}
		time.Sleep(time.Second)
		if got := told(); got != (Use{0, 3, 2}) {
			t.Errorf("two seconds later: %v", got)
		}
		u.Set(Limits{})
		if got := told(); got != (Use{-1, 0, 2}) {
			t.Errorf("without a limit: %v", got)
		}
	})
}
