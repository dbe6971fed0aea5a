package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// YoungError says that a server was not connected to, because it has not been up for as long as Target.MinUptime asks.
type YoungError struct{ Uptime, Min time.Duration }

func (e *YoungError) Error() string {
	return fmt.Sprintf("it was started %v ago, and counts after %v only", e.Uptime, e.Min)
}

// As finds a YoungError in the cause, which is hidden otherwise.
func (e *unsentError) As(target any) bool {
	young, ok := target.(**YoungError)
	return ok && errors.As(e.cause, young)
}

// oldEnough asks on a fresh connection for how long its server has been up, and gives that connection t's credentials. What
// is sent on it afterwards goes to that very process: a restart breaks the connection.
func oldEnough(ctx context.Context, conn net.Conn, t Target, timeout time.Duration) error {
	conn.SetDeadline(time.Now().Add(timeout))
	defer conn.SetDeadline(time.Time{})
	if id := (Identity{User: t.User, Password: t.Password, Proto: 2}); !id.anonymous() {
		hello, n := id.handshake(nil)
		if err := ask(ctx, conn, hello, n); err != nil {
			return err
		}
	}
	if _, err := conn.Write(resp.AppendCommand(nil, "INFO", "server")); err != nil {
		return err
	}
	reply, err := readFrame(conn)
	if err != nil {
		return err
	}
	if reply[0] == '-' {
		return &ReplyError{Line: strings.TrimRight(string(reply[1:]), "\r\n")}
	}
	_, rest, found := strings.Cut(string(reply), "\nuptime_in_seconds:")
	text, _, _ := strings.Cut(rest, "\r\n")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil {
		return violation("INFO server without uptime_in_seconds")
	}
	// Redis counts whole seconds, of which the first may have been short.
	if up := time.Duration(seconds-1) * time.Second; up < t.MinUptime {
		return &YoungError{max(up, 0), t.MinUptime}
	}
	return nil
}

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
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
