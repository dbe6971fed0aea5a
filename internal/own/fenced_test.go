package own

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The client of a FENCED is hung up on before Redis has answered WATCH and MULTI: nobody else gets the connection on
// which both take effect a moment later.
func TestFencedThatEndsLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	locks := lock.New(func(lockstore.Host) (lockstore.Store, lockstore.Rules) { return noStore{}, lockstore.Rules{} }, lock.ManagerOptions{})
	o, holds := connectionsOf(t, server), locks.NewClient(lock.ClientInfo{ID: 1})
	if _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	o.Settle() // so that there is one in the pool
	server.Stop()
	failed := make(chan error)
	go func() {
		cmd, _ := command("DECR", "stock")
		failed <- o.Fenced(holds, lock.HoldRequest{Key: "orders", Owner: "j"}, &commandtable.Command{Name: "decr"}, cmd.Args)
	}()
	waitUntil(t, "FENCED asks", func() bool { return o.client.Step.Now() > 0 })
	o.client.End.HangUp(downstream.Left, "killed")
	if err := <-failed; !errors.Is(err, dedicated.ErrGone) {
		t.Errorf("FENCED failed with %v", err)
	}
	server.Cont()
	o.End()
	waitUntil(t, "no connection is in a transaction", func() bool {
		return !strings.Contains(string(server.Do(t, "CLIENT", "LIST").([]byte)), " multi=0")
	})
}

// noStore is of a lock engine that is asked for no lock.
type noStore struct{ lockstore.Store }

func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("never: %s", what)
		}
	}
}
