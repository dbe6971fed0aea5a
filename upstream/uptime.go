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

	"github.com/lockproxy/lockproxy/proto/resp"
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
	conn.SetDeadline(time.Now().Add(timeout))
	defer conn.SetDeadline(time.Time{})
	if id := t.Service(); !id.Anonymous() {
		hello, n := id.handshake(nil)
		if err := ask(ctx, conn, hello, n); err != nil {
			return "", err
		}
	}
	replication, err := askInfo(conn, "replication")
	if err != nil {
		return "", err
	}
	if role := infoField(replication, "role"); role != "master" {
		return "", fmt.Errorf("its role is %q: it must be a master", role)
	}
	server, err := askInfo(conn, "server")
	if err != nil {
		return "", err
	}
	seconds, err := strconv.ParseInt(infoField(server, "uptime_in_seconds"), 10, 64)
	if err != nil {
		return "", violation("INFO server without uptime_in_seconds")
	}
	// Redis counts whole seconds, of which the first may have been short.
	if up := time.Duration(seconds-1) * time.Second; up < t.MinUptime {
		return "", &YoungError{max(up, 0), t.MinUptime, time.Now()}
	}
	return infoField(server, "run_id"), nil
}

// askInfo asks for one section of INFO.
func askInfo(conn net.Conn, section string) (string, error) {
	if _, err := conn.Write(resp.AppendCommand(nil, "INFO", section)); err != nil {
		return "", err
	}
	reply, err := readFrame(conn)
	if err == nil && reply[0] == '-' {
		err = &ReplyError{Line: strings.TrimRight(string(reply[1:]), "\r\n")}
	}
	return string(reply), err
}

// infoField is what a section of INFO says of one field, "" if nothing.
func infoField(section, name string) string {
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

// Add makes a name known.
func (d *Distinct) Add(name string) Vetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names, d.ids = append(d.names, name), append(d.ids, "")
	return &oneOfDistinct{d, len(d.names) - 1}
}

// oneOfDistinct is one of the names.
type oneOfDistinct struct {
	all *Distinct
	n   int
}

// Vet implements Vetter: a server that another name has is refused.
func (o *oneOfDistinct) Vet(runID string) error {
	d := o.all
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids[o.n] = ""
	for i, id := range d.ids {
		if runID != "" && id == runID {
			return fmt.Errorf("it is the same server as %s", d.names[i])
		}
	}
	d.ids[o.n] = runID
	return nil
}

// longestAnswer is how many bytes are read of one reply, at most.
const longestAnswer = 1 << 20

// readFrame reads one reply, on a connection with nothing else under way.
func readFrame(conn net.Conn) ([]byte, error) {
	var (
		scan  resp.Scanner
		buf   []byte
		piece [4 << 10]byte
		pos   int
	)
	for {
		got, err := conn.Read(piece[:])
		buf = append(buf, piece[:got]...)
		used, done, scanErr := scan.Scan(buf[pos:])
		if scanErr != nil {
			return nil, violation("%w", scanErr)
		}
		if pos += used; done {
			if pos < len(buf) {
				return nil, violation("a reply that nobody asked for")
			}
			return buf, nil
		}
		if len(buf) > longestAnswer {
			return nil, violation("a reply of more than %d bytes", longestAnswer)
		}
		if err != nil {
			return nil, err
		}
	}
}
