package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// YoungError says that a server was not connected to, because it has not been up, or has not been the one at its
// address, for as long as Target.MinUptime asks.
type YoungError struct {
	Uptime, Min time.Duration
	At          time.Time // when Uptime was asked for
	Other       bool      // Uptime counts from when it was seen first in another one's place
}

// Left returns in how long, at most, the server will be old enough.
func (e *YoungError) Left() time.Duration { return max(0, e.Min-e.Uptime-time.Since(e.At)) }

func (e *YoungError) Error() string {
	if e.Other {
		return fmt.Sprintf("it has been at this address for %v, and counts after %v only",
			e.Uptime.Round(time.Second), e.Min)
	}
	return fmt.Sprintf("it was started %v ago, and counts after %v only", e.Uptime, e.Min)
}

// As finds a YoungError in the cause, which is hidden otherwise.
func (e *unsentError) As(target any) bool {
	young, ok := target.(**YoungError)
	return ok && errors.As(e.cause, young)
}

// checkServer logs in on a fresh connection as t's account, and asks whether the server is a master and has been up for
// t.MinUptime. What is sent on the connection afterwards goes to that very process, because a restart breaks the
// connection. The run id is known with a YoungError, too.
func checkServer(ctx context.Context, conn net.Conn, t Target, timeout time.Duration) (runID string, err error) {
	var replication, server string
	steps := []step{infoStep(&replication, "replication"), infoStep(&server, "server")}
	if err := perform(ctx, conn, time.Now().Add(timeout), t.Service().steps(), steps); err != nil {
		return "", err
	}
	if role := InfoField(replication, "role"); role != "master" {
		return "", fmt.Errorf("its role is %q: it must be a master", role)
	}
	seconds, err := strconv.ParseInt(InfoField(server, "uptime_in_seconds"), 10, 64)
	if err != nil {
		return "", violation("INFO server without uptime_in_seconds")
	}
	// Redis counts whole seconds, of which the first may have been short.
	if up := time.Duration(seconds-1) * time.Second; up < t.MinUptime {
		err = &YoungError{Uptime: max(up, 0), Min: t.MinUptime, At: time.Now()}
	}
	return InfoField(server, "run_id"), err
}

// infoStep asks for one section of INFO.
func infoStep(into *string, section string) step {
	return step{[]string{"INFO", section}, func(reply []byte) error {
		*into = string(reply)
		return ErrorIn(reply)
	}}
}

// InfoField is what a section of INFO says of one field, "" if nothing.
func InfoField(section, name string) string {
	_, rest, _ := strings.Cut(section, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// Distinct refuses a server that is known under another name already, and one that has taken another's place not long
// ago: it may have been up all the while, and know nothing of what the other was told.
type Distinct struct {
	mu    sync.Mutex
	named []*named
}

// named is the servers that have had one name.
type named struct {
	name  string
	least time.Duration // for which a server must have had the name, unless it is the first one
	id    string        // of the server that has it now; "": none is reached
	last  string        // of the one that had it last
	since time.Time     // when that one was seen first; zero: it is the first one
}

// Add makes a name known, and returns its Target's Vetter.
func (d *Distinct) Add(name string, least time.Duration) func(runID string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &named{name: name, least: least}
	d.named = append(d.named, n)
	return func(runID string) error { return d.vet(n, runID, time.Now()) }
}

// vet gives the server to a name.
func (d *Distinct) vet(n *named, runID string, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.id = runID; runID == "" {
		return nil
	}
	for _, other := range d.named {
		if other != n && other.id == runID {
			n.id = ""
			return fmt.Errorf("it is the same server as %s", other.name)
		}
	}
	if n.last != "" && n.last != runID {
		n.since = now
	}
	n.last = runID
	if had := now.Sub(n.since); !n.since.IsZero() && had < n.least {
		return &YoungError{Uptime: had, Min: n.least, At: now, Other: true}
	}
	return nil
}
