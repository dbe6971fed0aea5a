package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A short absence of Redis is not noticed by a Patient request; others fail at once, and so does a Patient one after a second of it.
func TestPatientRequest(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	between := testredis.NewProxy(t, s.Addr())
	target := targetOf(t, s)
	target.Addr = between.Addr()
	p := open(t, newNode(t, target, NodeOptions{}), Identity{Proto: 2})
	ping := func(patient bool) (string, error) {
		var got collect
		err := p.Do(&Request{Cmds: [][]byte{[]byte("*1\r\n$4\r\nPING\r\n")}, Sink: &got, Patient: patient})
		return string(got.got), err
	}
	goneSince := func(at time.Time) {
		p.node.contact.lost.Store(&at)
	}
	between.Disable()
	eventually(t, "the back-off runs", func() bool { return p.state().phase == backingOff })
	var unsent *NotSentError
	eventually(t, "a request fails at once", func() bool {
		_, err := ping(false)
		return errors.As(err, &unsent)
	})
	goneSince(time.Now().Add(-2 * patience))
	eventually(t, "a patient one fails, too", func() bool {
		_, err := ping(true)
		return errors.As(err, &unsent)
	})
	goneSince(time.Now().Add(time.Hour)) // as long as this test takes
	answered := make(chan error, 1)
	go func() {
		for {
			got, err := ping(true)
			if errors.As(err, &unsent) { // its second was over: the machine is busy
				continue
			}
			if got != "+PONG\r\n" && err == nil {
				err = errors.New("not answered: " + got)
			}
			answered <- err
			return
		}
	}()
	select {
	case err := <-answered:
		t.Fatalf("answered while Redis was away: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	between.Enable()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// Who connects again while Redis is away for a short time waits as well, on a shared connection and on one of its own: nobody has to have stayed.
func TestPatientOpen(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*Node, context.Context, Identity) (*Pipe, error){"shared": (*Node).Open, "private": (*Node).Private} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testredis.Start(t)
			between := testredis.NewProxy(t, s.Addr())
			target := targetOf(t, s)
			target.Addr = between.Addr()
			n := newNode(t, target, NodeOptions{})
			former, err := n.Open(t.Context(), Identity{Proto: 2})
			if err != nil {
				t.Fatal(err)
			}
			between.Disable()
			eventually(t, "the loss is noticed", n.contact.lately)
			former.Release()
			n.contact.lost.Store(new(time.Now().Add(time.Hour))) // as long as this test takes
			opened := make(chan error, 1)
			go func() {
				for {
					p, err := connect(n, t.Context(), Identity{Proto: 3})
					if unsent := new(NotSentError); errors.As(err, &unsent) { // its second was over: the machine is busy
						continue
					}
					if err == nil {
						p.Release()
					}
					opened <- err
					return
				}
			}()
			select {
			case err := <-opened:
				t.Fatalf("opened while Redis was away: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			between.Enable()
			if err := <-opened; err != nil {
				t.Error(err)
			}
		})
	}
}

// A connection that is closed here is not lost: Redis may be as near as ever, and a dial may take its time.
func TestAClosedConnectionIsNotLost(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	n := newNode(t, targetOf(t, s), NodeOptions{})
	p, err := n.Private(t.Context(), Identity{Proto: 2})
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	eventually(t, "it is closed", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.phase == ended
	})
	if n.contact.lately() {
		t.Error("it counts as a loss")
	}
	n.contact.lost.Store(new(time.Now().Add(time.Hour)))
	s.Stop() // it takes connections and says nothing, as while a script runs
	defer s.Cont()
	if _, err := n.Private(t.Context(), Identity{Proto: 2}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v is no time-out", err)
	}
}

// Who is refused asks again as often as he likes: Redis gets a connection for each back-off, not for each try.
func TestRefusedAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	n := newNode(t, targetOf(t, s), NodeOptions{})
	made := func() (n int) {
		stats, _ := s.Do(t, "INFO", "stats").([]byte)
		_, count, _ := strings.Cut(string(stats), "total_connections_received:")
		if _, err := fmt.Sscan(count, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, tries := made(), 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); tries++ {
		if _, err := n.Open(t.Context(), Identity{DB: 99}); Refused(err) == nil {
			t.Fatal(err)
		}
	}
	if n := made() - before; n > 50 {
		t.Errorf("%d connections for %d tries within a second", n, tries)
	}
}

// A connection that is ended for one client's sake is not lost; and nobody is patient with a node of a cluster, since another one may have its slots.
func TestWhatIsALoss(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		nodeID string
		want   bool
	}{
		"the end of the stream": {err: io.EOF, want: true},
		"rights changed":        {err: errRenewed, want: true},
		"its client has left":   {err: ErrLeft},
		"a node of a cluster":   {err: io.EOF, nodeID: "id"},
	} {
		n := newNode(t, Target{Network: "tcp", Addr: "127.0.0.1:1", NodeID: c.nodeID}, NodeOptions{})
		p := newPipe(n, Identity{}, sharedPipe, &share{})
		if p.noteLoss(c.err); n.contact.lately() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
		p.stop()
	}
}

// What Redis refuses to one user is no failure of Redis, unless that user is the service account; any other refusal is one.
func TestWhoIsRefused(t *testing.T) {
	t.Parallel()
	target := Target{User: "service", Password: "pw"}
	for line, of := range map[string]bool{
		"WRONGPASS invalid username-password pair": true, "NOPERM this user has no permissions": true, "NOAUTH Authentication required.": true,
		"ERR DB index is out of range": true, "ERR max number of clients reached": false, "LOADING Redis is loading": false,
	} {
		if got := (&ReplyError{Line: line}).ofUser(); got != of {
			t.Errorf("%s: %v", line, got)
		}
	}
	for id, want := range map[Identity]bool{
		{User: "service", Password: "pw", Proto: 3}: true, {User: "service", Password: "pw", DB: 99}: false, {User: "service", Password: "old"}: false, {User: "me", Password: "pw"}: false,
	} {
		if got := id.isService(target); got != want {
			t.Errorf("%+v: %v", id, got)
		}
	}
}
