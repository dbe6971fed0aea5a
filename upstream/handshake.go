package upstream

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Identity is what Redis knows of a connection: connections of equal
// identity are interchangeable.
type Identity struct {
	// User and Password "" mean: never authenticated, Redis' default user
	// decides. User "" with a password is the one-argument AUTH.
	User, Password string
	// Secret, unless nil, has the password instead of Password.
	Secret Secret
	DB     int
	Proto  int // 2 or 3
	// Lane keeps connections apart that are the same to Redis, so that a command does not wait behind those
	// of other lanes: below 0 are the proxy's own connections, above 1 those of one client at a time.
	Lane int
	// Reads is READONLY: a replica in a cluster then serves reads of its master's slots.
	Reads bool
}

// Secret is a password that changes while the proxy runs: each connection is made with the present one. Its values are comparable.
type Secret interface {
	Password() string
}

// PresentPassword is the password for a new connection.
func (id Identity) PresentPassword() string {
	if id.Secret != nil {
		return id.Secret.Password()
	}
	return id.Password
}

// Credentials returns what rueidis logs in with. rueidis calls it before each connection.
func (id Identity) Credentials(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	return rueidis.AuthCredentials{Username: id.User, Password: id.PresentPassword()}, nil
}

// Anonymous says that the connection never authenticated.
func (id Identity) Anonymous() bool { return id.User == "" && id.Password == "" && id.Secret == nil }

// alone says that the connection serves one client at a time, as those in the lanes beyond the first do.
func (id Identity) alone() bool { return id.Lane > 1 }

// handshake appends the commands that make a fresh connection id's, and says
// how many they are: none for RESP2, database 0, without credentials.
func (id Identity) handshake(b []byte) ([]byte, int) {
	n := 0
	auth := !id.Anonymous()
	switch {
	case id.Proto == 3 && auth:
		user := id.User
		if user == "" {
			user = "default"
		}
		b, n = resp.AppendCommand(b, "HELLO", "3", "AUTH", user, id.PresentPassword()), n+1
	case id.Proto == 3:
		b, n = resp.AppendCommand(b, "HELLO", "3"), n+1
	case auth:
		b, n = appendAuth(b, id.User, id.PresentPassword()), n+1
	}
	if id.DB != 0 {
		b, n = resp.AppendCommand(b, "SELECT", strconv.Itoa(id.DB)), n+1
	}
	if id.Reads {
		b, n = resp.AppendCommand(b, "READONLY"), n+1
	}
	return b, n
}

// appendAuth appends AUTH, in its one-argument form when user is "".
func appendAuth(b []byte, user, password string) []byte {
	if user == "" {
		return resp.AppendCommand(b, "AUTH", password)
	}
	return resp.AppendCommand(b, "AUTH", user, password)
}

// Connect dials t and does id's handshake, all within timeout. term ends when another Redis has become the
// master. The error is a *ReplyError when Redis refuses, an *AnotherNodeError when the server is not the
// node that t means.
func Connect(ctx context.Context, t Target, id Identity, timeout time.Duration) (conn net.Conn, term context.Context, err error) {
	deadline := time.Now().Add(timeout)
	conn, term, err = dialTarget(ctx, t, timeout)
	if err != nil {
		return nil, nil, err
	}
	defer closeAfter(term, conn)()
	if err := greet(ctx, conn, id, deadline); err != nil {
		conn.Close()
		return nil, nil, err
	}
	if err := proveNode(ctx, conn, t, time.Until(deadline)); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, term, nil
}

// greet does id's handshake on a fresh connection, until deadline.
func greet(ctx context.Context, conn net.Conn, id Identity, deadline time.Time) error {
	hello, n := id.handshake(nil)
	if n == 0 {
		return nil
	}
	conn.SetDeadline(deadline)
	defer conn.SetDeadline(time.Time{})
	return ask(ctx, conn, hello, n)
}

// closeAfter closes conn when its term ends, unless stop is called before.
func closeAfter(term context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(term, func() { conn.Close() })
}

// ask sends cmds, n commands, and reads their replies on a connection that
// nobody else uses. The first error reply is returned as a *ReplyError; after
// any other error, ctx's end included, the connection must be closed.
func ask(ctx context.Context, conn net.Conn, cmds []byte, n int) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := exchange(conn, cmds, n)
	if !stop() && Refused(err) == nil {
		return ctx.Err() // the deadline lies in the past now
	}
	return err
}

func exchange(conn net.Conn, cmds []byte, n int) error {
	if _, err := conn.Write(cmds); err != nil {
		return err
	}
	var (
		scan       resp.Scanner
		refusal    *ReplyError
		buf        []byte
		piece      [4 << 10]byte
		frame, pos int
	)
	for n > 0 {
		got, err := conn.Read(piece[:])
		buf = append(buf, piece[:got]...)
		for pos < len(buf) && n > 0 {
			used, done, scanErr := scan.Scan(buf[pos:])
			if scanErr != nil {
				return violation("%w", scanErr)
			}
			if pos += used; !done {
				break
			}
			if buf[frame] == '-' && refusal == nil {
				refusal = &ReplyError{Line: string(bytes.TrimRight(buf[frame+1:pos], "\r\n"))}
			}
			frame = pos
			n--
		}
		if n > 0 && err != nil {
			if refusal != nil { // refused, and closed at once: max number of clients
				break
			}
			return err
		}
	}
	if refusal != nil {
		return refusal
	}
	if pos < len(buf) {
		return violation("a reply that nobody asked for")
	}
	return nil
}
