package runlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// proxy is the lockproxy that is asked, or, behind one address, whichever is there. One goroutine uses it at a time.
type proxy struct {
	at   upstream.Target
	conn net.Conn // nil: none
}

// replyError is an error that a proxy answered.
type replyError struct{ line string }

func (e *replyError) Error() string { return e.line }

var errSilent = errors.New("the proxy does not answer")

// passing begins the errors of a proxy, or of Redis, whose reason may pass.
var passing = []string{"DRAINING", "NOQUORUM", "NOREPLICAS", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "MISCONF",
	"ERR upstream", "ERR max number of", "ERR the reply to this"}

// mayPass says that another try may do better.
func mayPass(err error) bool {
	var said *replyError
	return !errors.As(err, &said) || begins(said.line, passing...)
}

func isLoss(err error) bool {
	var said *replyError
	return errors.As(err, &said) && begins(said.line, "LOCKLOST", "NOTHELD")
}

func begins(line string, words ...string) bool {
	for _, word := range words {
		if strings.HasPrefix(line, word) {
			return true
		}
	}
	return false
}

// ask sends commands together and returns their replies, of which none is an error. It waits so long for them if limit is not 0. After an
// error that may pass the next question goes over a new connection, maybe to another proxy.
func (p *proxy) ask(ctx context.Context, limit time.Duration, commands ...[]string) ([]resp.Reply, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errSilent)
		defer cancel()
	}
	replies, err := p.exchange(ctx, commands)
	if err != nil && mayPass(err) {
		p.close()
	}
	return replies, err
}

func (p *proxy) exchange(ctx context.Context, commands [][]string) ([]resp.Reply, error) {
	if p.conn == nil {
		if err := p.connect(ctx); err != nil {
			return nil, err
		}
	}
	return exchange(ctx, p.conn, commands)
}

// connect connects and logs in.
func (p *proxy) connect(ctx context.Context) error {
	t := p.at
	conn, err := upstream.Dial(ctx, t, dialTime)
	if err != nil {
		return err
	}
	first := [][]string{{"CLIENT", "SETNAME", "lockproxy-run"}}
	if t.Password != "" {
		first = append([][]string{{"AUTH", cmp.Or(t.User, "default"), t.Password}}, first...)
	}
	if t.DB != 0 {
		first = append(first, []string{"SELECT", strconv.Itoa(t.DB)})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	if _, err := exchange(ctx, conn, first); err != nil {
		conn.Close()
		return fmt.Errorf("%s: %w", t.Addr, err)
	}
	p.conn = conn
	return nil
}

// close ends the connection, and with it what is waited for over it.
func (p *proxy) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// maxReply is far above anything that is asked for here.
const maxReply = 1 << 20

// exchange sends commands and returns all their replies, with the error among them. After a replyError the connection may be used on.
func exchange(ctx context.Context, conn net.Conn, commands [][]string) (replies []resp.Reply, err error) {
	conn.SetDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	var request, got []byte
	for _, words := range commands {
		request = resp.AppendCommand(request, words...)
	}
	_, err = conn.Write(request)
	for buf := make([]byte, 4096); err == nil; {
		if replies, err = cut(got, len(commands)); err != nil {
			break
		}
		if len(replies) == len(commands) {
			return replies, errorIn(replies)
		}
		var n int
		n, err = conn.Read(buf)
		got = append(got, buf[:n]...)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("%s: %w", conn.RemoteAddr(), err)
}

// cut takes n replies apart, or as many as there are.
func cut(got []byte, n int) (replies []resp.Reply, err error) {
	for len(replies) < n {
		r, ok := resp.ParseReply(got)
		if !ok {
			break
		}
		if !strings.ContainsRune("+-:$*", rune(r.Kind)) {
			return nil, errNoProxy
		}
		replies, got = append(replies, r), got[len(r.Raw):]
	}
	if len(got) > maxReply {
		return nil, errNoProxy
	}
	return replies, nil
}

var errNoProxy = errors.New("this is not a lockproxy")

// errorIn is the error among replies that counts: a loss before all others.
func errorIn(replies []resp.Reply) (first error) {
	for _, r := range replies {
		if r.Kind != '-' {
			continue
		}
		if err := error(&replyError{string(r.Text)}); first == nil || isLoss(err) {
			first = err
		}
	}
	return first
}
