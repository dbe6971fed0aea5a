package upstream

import (
	"cmp"
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

// userName gives Redis' default user its name.
func (id Identity) userName() string { return cmp.Or(id.User, "default") }

// alone says that the connection serves one client at a time, as those in the lanes beyond the first do.
func (id Identity) alone() bool { return id.Lane > 1 }

// handshake appends the commands that make a fresh connection id's, and says
// how many they are: none for RESP2, database 0, without credentials.
func (id Identity) handshake(b []byte) ([]byte, int) {
	n := 0
	auth := !id.Anonymous()
	switch {
	case id.Proto == 3 && auth:
		b, n = resp.AppendCommand(b, "HELLO", "3", "AUTH", id.userName(), id.PresentPassword()), n+1
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
	if err := served(ctx, conn, id, deadline); err != nil {
		conn.Close()
		return nil, nil, err
	}
	if err := proveNode(ctx, conn, t, deadline); err != nil {
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

// longestAnswer is how many bytes are read of the replies to one question, at most.
const longestAnswer = 1 << 20

// Ask sends one command, on a connection with nothing else under way, and returns its reply, which may be an error of Redis'. It waits until
// deadline or ctx' end. After an error the connection must be closed; else it has no deadline.
func Ask(ctx context.Context, conn net.Conn, deadline time.Time, words ...string) ([]byte, error) {
	conn.SetDeadline(deadline)
	defer conn.SetDeadline(time.Time{})
	replies, err := exchange(ctx, conn, resp.AppendCommand(nil, words...), 1)
	if err != nil {
		return nil, err
	}
	return replies[0], nil
}

// ask sends cmds, n commands, on such a connection. The first error reply is returned as a *ReplyError; after any other error, ctx's end
// included, the connection must be closed.
func ask(ctx context.Context, conn net.Conn, cmds []byte, n int) error {
	replies, err := exchange(ctx, conn, cmds, n)
	for _, reply := range replies {
		if refusal := ErrorIn(reply); refusal != nil { // the connection may have been closed behind it: max number of clients
			return refusal
		}
	}
	return err
}

// exchange returns the replies to cmds, n commands; with an error those that came before it.
func exchange(ctx context.Context, conn net.Conn, cmds []byte, n int) ([][]byte, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(cmds); err != nil {
		return nil, err
	}
	replies, err := readReplies(conn, n)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline lies in the past now
	}
	return replies, err
}

// readReplies reads n replies; with an error it returns those that came before it.
func readReplies(conn net.Conn, n int) (replies [][]byte, err error) {
	var (
		scan       resp.Scanner
		buf        []byte
		piece      [4 << 10]byte
		frame, pos int
	)
	for {
		got, err := conn.Read(piece[:])
		buf = append(buf, piece[:got]...)
		for pos < len(buf) && len(replies) < n {
			used, done, scanErr := scan.Scan(buf[pos:])
			if scanErr != nil {
				return replies, violation("%w", scanErr)
			}
			if pos += used; done {
				replies = append(replies, buf[frame:pos])
				frame = pos
			}
		}
		switch {
		case len(replies) == n && pos < len(buf):
			return replies, violation("a reply that nobody asked for")
		case len(replies) == n:
			return replies, nil
		case len(buf) > longestAnswer:
			return replies, violation("a reply of more than %d bytes", longestAnswer)
		case err != nil:
			return replies, err
		}
	}
}
