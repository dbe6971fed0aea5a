package upstream

import (
	"cmp"
	"context"
	"net"
	"slices"
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
	// For keeps connections apart that are the same to Redis, so that a command does not wait behind those that something
	// else is for.
	For Purpose
}

// Purpose is what a connection is for.
type Purpose uint8

const (
	Commands  Purpose = iota // of clients
	Writes                   // of clients: commands that Redis has wait while it pauses writes
	Scripts                  // of clients, and what is sent together with them
	Questions                // of the proxy's own: no Budget counts their connections
)

// quicker says that such a connection of id's only makes things quicker: that for commands does as well.
func (id Identity) quicker(kind pipeKind) bool {
	return kind == sharedPipe && (id.For == Writes || id.For == Scripts)
}

// Secret is a password that changes while the proxy runs: each connection is made with the present one. Its values are
// comparable.
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

// step is one command of a handshake, and what Redis' reply to it means.
type step struct {
	words []string
	judge func(reply []byte) error // nil: ErrorIn, an error of Redis' is a refusal
}

// steps make a fresh connection id's: there are none for RESP2, database 0, without credentials.
func (id Identity) steps() (all []step) {
	add := func(words ...string) { all = append(all, step{words: words}) }
	switch {
	case id.Proto == 3 && id.Anonymous():
		add("HELLO", "3")
	case id.Proto == 3:
		add("HELLO", "3", "AUTH", id.userName(), id.PresentPassword())
	case !id.Anonymous():
		add(authWords(id.User, id.PresentPassword())...)
	}
	return append(all, id.settings()...)
}

// settings are the steps after the login.
func (id Identity) settings() (all []step) {
	if id.DB != 0 {
		all = append(all, step{words: []string{"SELECT", strconv.Itoa(id.DB)}})
	}
	return all
}

// authWords is AUTH, in its one-argument form when user is "".
func authWords(user, password string) []string {
	if user == "" {
		return []string{"AUTH", password}
	}
	return []string{"AUTH", user, password}
}

// connect dials t and takes the steps that make the connection id's, and those in last, all within timeout. The error
// is a *ReplyError when Redis refuses, an *AnotherNodeError when the server is not the node that t means.
func connect(ctx context.Context, t Target, id Identity, timeout time.Duration, last ...step) (*termConn, error) {
	deadline := time.Now().Add(timeout)
	c, err := dialTarget(ctx, t, timeout)
	if err != nil {
		return nil, err
	}
	if err := perform(ctx, c, deadline, id.steps(), id.served(), t.proof(), last); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// perform takes all steps until deadline, in one write. The error is that of the first step whose reply is judged
// wrong; the connection is of no further use then.
func perform(ctx context.Context, conn net.Conn, deadline time.Time, lists ...[]step) error {
	steps := slices.Concat(lists...)
	if len(steps) == 0 {
		return nil
	}
	var cmds []byte
	for _, s := range steps {
		cmds = resp.AppendCommand(cmds, s.words...)
	}
	conn.SetDeadline(deadline)
	defer conn.SetDeadline(time.Time{})
	replies, err := Exchange(ctx, conn, cmds, len(steps), longestAnswer)
	for i, reply := range replies { // the connection may have been closed behind one: max number of clients
		judge := steps[i].judge
		if judge == nil {
			judge = ErrorIn
		}
		if wrong := judge(reply); wrong != nil {
			return wrong
		}
	}
	return err
}

// longestAnswer is how many bytes are read of the replies to one question, at most.
const longestAnswer = 1 << 20

// ask sends one command, on a connection with nothing else under way, and returns its reply, which may be an error of
// Redis'. It waits until deadline or ctx' end. After an error the connection must be closed; else it has no deadline.
func ask(ctx context.Context, conn net.Conn, deadline time.Time, words ...string) (reply []byte, err error) {
	keep := func(got []byte) error {
		reply = got
		return nil
	}
	err = perform(ctx, conn, deadline, []step{{words, keep}})
	return reply, err
}

// Exchange sends cmds, n commands, on a connection with nothing else under way, and returns their replies, which have so
// many bytes at most; with an error those that came before it. When ctx ends the connection is of no further use.
func Exchange(ctx context.Context, conn net.Conn, cmds []byte, n, most int) ([][]byte, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(cmds); err != nil {
		return nil, err
	}
	replies, err := readReplies(conn, n, most)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline lies in the past now
	}
	return replies, err
}

// readReplies reads n replies; with an error it returns those that came before it.
func readReplies(conn net.Conn, n, most int) (replies [][]byte, err error) {
	var (
		scan       resp.Scanner
		buf        []byte
		frame, pos int
	)
	for {
		buf = slices.Grow(buf, 512) // most answers are short
		got, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+got]
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
		case len(buf) > most:
			return replies, violation("a reply of more than %d bytes", most)
		case err != nil:
			return replies, err
		}
	}
}
