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

// YoungError says that a server was not connected to, because it has not been up for as long as Target.MinUptime asks.
type YoungError struct {
	Uptime, Min time.Duration
	At          time.Time // when Uptime was asked for
}

// Left returns in how long, at most, the server will be old enough.
func (e *YoungError) Left() time.Duration { return max(0, e.Min-e.Uptime-time.Since(e.At)) }

func (e *YoungError) Error() string {
	return fmt.Sprintf("it was started %v ago, and counts after %v only", e.Uptime, e.Min)
}

// As finds a YoungError in the cause, which is hidden otherwise.
func (e *unsentError) As(target any) bool {
	young, ok := target.(**YoungError)
	return ok && errors.As(e.cause, young)
}

// checkServer logs in on a fresh connection as t's account, and asks whether the server is a master and has been up for t.MinUptime.
// What is sent on the connection afterwards goes to that very process, because a restart breaks the connection.
func checkServer(ctx context.Context, conn net.Conn, t Target, timeout time.Duration) (runID string, err error) {
	deadline := time.Now().Add(timeout)
	if err := greet(ctx, conn, t.Service(), deadline); err != nil {
		return "", err
	}
	replication, err := askInfo(ctx, conn, deadline, "replication")
	if err != nil {
		return "", err
	}
	if role := InfoField(replication, "role"); role != "master" {
		return "", fmt.Errorf("its role is %q: it must be a master", role)
	}
	server, err := askInfo(ctx, conn, deadline, "server")
	if err != nil {
		return "", err
	}
	seconds, err := strconv.ParseInt(InfoField(server, "uptime_in_seconds"), 10, 64)
	if err != nil {
		return "", violation("INFO server without uptime_in_seconds")
	}
	// Redis counts whole seconds, of which the first may have been short.
	if up := time.Duration(seconds-1) * time.Second; up < t.MinUptime {
		return "", &YoungError{max(up, 0), t.MinUptime, time.Now()}
	}
	return InfoField(server, "run_id"), nil
}

// askInfo asks for one section of INFO.
func askInfo(ctx context.Context, conn net.Conn, deadline time.Time, section string) (string, error) {
	reply, err := Ask(ctx, conn, deadline, "INFO", section)
	if err == nil {
		err = ErrorIn(reply)
	}
	return string(reply), err
}

// InfoField is what a section of INFO says of one field, "" if nothing.
func InfoField(section, name string) string {
	_, rest, _ := strings.Cut(section, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// Distinct refuses a server that is known under another name already.
type Distinct struct {
	mu    sync.Mutex
	names []string
	ids   []string // of the servers that they have
}

// Add makes a name known, and returns its Target's Vetter: a server that another name has is refused.
func (d *Distinct) Add(name string) func(runID string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.names)
	d.names, d.ids = append(d.names, name), append(d.ids, "")
	return func(runID string) error { return d.vet(n, runID) }
}

// vet gives the server to the n-th name.
func (d *Distinct) vet(n int, runID string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids[n] = ""
	for i, id := range d.ids {
		if runID != "" && id == runID {
			return fmt.Errorf("it is the same server as %s", d.names[i])
		}
	}
	d.ids[n] = runID
	return nil
}
