package runlock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// proxy is a connection to a lockproxy. One command is under way at a time.
type proxy struct {
	conn    net.Conn
	replies chan resp.Reply
	lost    chan string   // the reason with which the proxy has pushed that a lock is lost
	ended   chan struct{} // closed when the connection is over, err says why
	err     error
	once    sync.Once
}

// replyError is an error that the proxy answered.
type replyError struct{ line string }

func (e *replyError) Error() string { return e.line }

var errSilent = errors.New("the proxy does not answer")

// worthAnotherTry says that another connection, maybe to another proxy, may do better.
func worthAnotherTry(err error) bool {
	var said *replyError
	return !errors.As(err, &said) || strings.HasPrefix(said.line, "DRAINING")
}

func isLoss(err error) bool {
	var said *replyError
	return errors.As(err, &said) && lossLine(said.line)
}

func lossLine(line string) bool {
	return strings.HasPrefix(line, "LOCKLOST") || strings.HasPrefix(line, "NOTHELD")
}

// dial connects, logs in and asks to be told of losses.
func dial(ctx context.Context, t upstream.Target) (*proxy, error) {
	conn, err := upstream.Dial(ctx, t, dialTime)
	if err != nil {
		return nil, err
	}
	p := &proxy{conn: conn, replies: make(chan resp.Reply, 1), lost: make(chan string, 1), ended: make(chan struct{})}
	go p.read()
	hello := []string{"HELLO", "3"}
	if t.Password != "" {
		hello = append(hello, "AUTH", cmp.Or(t.User, "default"), t.Password)
	}
	first := [][]string{append(hello, "SETNAME", "lockproxy-run"), {"CLIENT", "CAPA", "lock-lost"}}
	if t.DB != 0 {
		first = append(first, []string{"SELECT", strconv.Itoa(t.DB)})
	}
	for _, words := range first {
		if _, err = p.call(ctx, answerTime, words...); err != nil {
			p.close()
			return nil, fmt.Errorf("%s: %w", words[0], err)
		}
	}
	return p, nil
}

// maxReply is far above anything that is asked for here.
const maxReply = 1 << 20

// read takes replies and pushes apart until the connection ends.
func (p *proxy) read() {
	defer close(p.ended)
	var got []byte
	for b := make([]byte, 4096); ; {
		n, err := p.conn.Read(b)
		got = append(got, b[:n]...)
		for {
			r, ok := resp.ParseReply(got)
			if !ok {
				break
			}
			if !p.take(cloned(r)) {
				return
			}
			got = got[len(r.Raw):]
		}
		switch {
		case err != nil:
			p.err = err
			return
		case len(got) > maxReply:
			p.err = errors.New("this is not a lockproxy")
			return
		}
	}
}

// cloned has bytes of its own.
func cloned(r resp.Reply) resp.Reply {
	r, _ = resp.ParseReply(bytes.Clone(r.Raw))
	return r
}

func (p *proxy) take(r resp.Reply) bool {
	if r.Kind != '>' {
		select {
		case p.replies <- r:
			return true
		default:
			p.err = errors.New("a reply that nobody asked for")
			return false
		}
	}
	if len(r.Elems) == 4 && string(r.Elems[0].Text) == "lock-lost" {
		select {
		case p.lost <- string(r.Elems[3].Text):
		default: // one is enough
		}
	}
	return true
}

// send sends a command, whose reply will be in replies. What keeps it from being sent ends the connection.
func (p *proxy) send(words ...string) {
	p.conn.SetWriteDeadline(time.Now().Add(answerTime))
	if _, err := p.conn.Write(resp.AppendCommand(nil, words...)); err != nil {
		p.close()
	}
}

// call sends a command and waits for its reply, so long if limit is not 0. The reply is no error.
func (p *proxy) call(ctx context.Context, limit time.Duration, words ...string) (resp.Reply, error) {
	p.send(words...)
	return p.answer(ctx, limit)
}

// answer waits for the reply to what was sent.
func (p *proxy) answer(ctx context.Context, limit time.Duration) (resp.Reply, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errSilent)
		defer cancel()
	}
	select {
	case r := <-p.replies:
		if r.Kind == '-' || r.Kind == '!' {
			return r, &replyError{string(r.Text)}
		}
		return r, nil
	case <-p.ended:
		return resp.Reply{}, fmt.Errorf("the connection to the proxy ended: %w", p.err)
	case <-ctx.Done():
		return resp.Reply{}, context.Cause(ctx)
	}
}

// close ends the connection, and with it the lock.
func (p *proxy) close() {
	p.once.Do(func() { p.conn.Close() })
	<-p.ended
}
