package upstream

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// scripts runs the short Lua scripts of LOCK and UNLOCK over pipes of the service account, one for each db and used for
// nothing else. Through rueidis the same pair of calls costs the proxy three times the CPU, most of it in waking
// goroutines.
type scripts struct {
	node  *Node     // its own: no client's command is ever sent on its connections
	pipes sync.Map  // of *scriptPipe by db, each opened once and kept
	calls sync.Pool // of *scriptCall
}

// scriptTimeout is how long a script may take to answer before its connection is given up, as rueidis does with its
// own. It is longer than Redis takes to answer everybody with BUSY while a script runs (lua-time-limit, 5 s by itself).
const scriptTimeout = controlPing + controlTimeout

var errSilent = errors.New("no answer from Redis within " + scriptTimeout.String())

// scriptCall is what one run needs, kept for the next.
type scriptCall struct {
	req   Request
	cmd   []byte
	reply []byte
}

// scriptPipe is a pipe for scripts. Its connection is given up when Redis says nothing for too long.
type scriptPipe struct {
	*Pipe
	calls atomic.Int64 // under way
	heard atomic.Int64 // when the last one ended, or the first of those under way began, by telemetry.Clock
	timer *time.Timer  // calls check; one for all calls, since to set one for each costs more than the rest of do
	armed atomic.Bool  // the timer runs
}

func newScriptPipe(p *Pipe) *scriptPipe {
	s := &scriptPipe{Pipe: p}
	s.timer = time.AfterFunc(time.Hour, s.check)
	s.timer.Stop()
	return s
}

// do is Pipe.Do with a time-out.
func (p *scriptPipe) do(r *Request) error {
	if p.calls.Load() == 0 {
		p.hear()
	}
	p.calls.Add(1)
	p.arm(scriptTimeout)
	err := p.Do(r)
	p.hear()
	p.calls.Add(-1)
	return err
}

func (p *scriptPipe) hear() { p.heard.Store(int64(telemetry.Clock())) }

// arm has check called then, unless it will be.
func (p *scriptPipe) arm(in time.Duration) {
	if !p.armed.Load() && p.armed.CompareAndSwap(false, true) {
		p.timer.Reset(in)
	}
}

// check gives the connection up if it has been silent for too long, and comes again as long as calls are under way. It
// runs on the timer's goroutine.
func (p *scriptPipe) check() {
	p.armed.Store(false)
	if p.calls.Load() == 0 {
		return // the next one arms the timer
	}
	left := scriptTimeout - (telemetry.Clock() - time.Duration(p.heard.Load()))
	if left <= 0 {
		p.dropLink(errSilent)
		left = scriptTimeout
	}
	p.arm(left)
}

// Reply gathers the reply.
func (c *scriptCall) Reply(p []byte) { c.reply = append(c.reply, p...) }

// pipe returns db's pipe, which the first call opens.
func (s *scripts) pipe(db int) (*scriptPipe, error) {
	if p, ok := s.pipes.Load(db); ok {
		return p.(*scriptPipe), nil
	}
	service := s.node.target.Service()
	service.DB = db
	p, err := s.node.Open(context.Background(), service) // Open ends when the node is closed
	if err != nil {
		return nil, err
	}
	kept, other := s.pipes.LoadOrStore(db, newScriptPipe(p))
	if other {
		p.Release() // the same pipe, opened twice at once
	}
	return kept.(*scriptPipe), nil
}

// Ints runs a script that returns an integer or an array of integers, by EVALSHA, and by EVAL when Redis does not know
// it. ask: after ASKING, in one write, for a slot that this node of a cluster is importing. Errors are those of Pipe.Do;
// an error that the script raised is a *ReplyError with Redis' line. Without an answer for 6 s the connection is given
// up, and the outcome unknown.
func (c *Control) Ints(db int, sha, source string, keys, args []string, ask bool) ([]int64, error) {
	p, err := c.scripts.pipe(db)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		jitter.Turn(keys[0], args)
	}
	out, err := c.scripts.runScript(p, "EVALSHA", sha, keys, args, ask)
	if RefusedWith(err, "NOSCRIPT") {
		return c.scripts.runScript(p, "EVAL", source, keys, args, ask)
	}
	return out, err
}

var asking = resp.AppendCommand(nil, "ASKING")

func (s *scripts) runScript(p *scriptPipe, verb, script string, keys, args []string, ask bool) ([]int64, error) {
	c := s.calls.Get().(*scriptCall)
	defer s.calls.Put(c)
	c.cmd = resp.AppendArray(c.cmd[:0], 3+len(keys)+len(args))
	c.cmd = resp.AppendBulkString(c.cmd, verb)
	c.cmd = resp.AppendBulkString(c.cmd, script)
	c.cmd = resp.AppendBulkString(c.cmd, strconv.Itoa(len(keys)))
	for _, list := range [2][]string{keys, args} {
		for _, word := range list {
			c.cmd = resp.AppendBulkString(c.cmd, word)
		}
	}
	c.reply = c.reply[:0]
	c.req.Cmds, c.req.Sink = c.req.Cmds[:0], c
	if ask {
		c.req.Cmds = append(c.req.Cmds, asking)
	}
	c.req.Cmds = append(c.req.Cmds, c.cmd)
	if err := p.do(&c.req); err != nil {
		return nil, err
	}
	reply := c.reply
	if ask {
		_, reply, _ = bytes.Cut(reply, []byte("\r\n"))
	}
	return parseInts(reply)
}

// parseInts takes apart an array of integers, one integer, or an error.
func parseInts(reply []byte) (all []int64, err error) {
	n, rest, ok := parseNumber('*', reply)
	if !ok {
		n, rest = 1, reply
	}
	ok = n > 0 && n <= int64(len(rest))
	if ok {
		all = make([]int64, n)
	}
	for i := 0; ok && i < len(all); i++ {
		all[i], rest, ok = parseNumber(':', rest)
	}
	if ok && len(rest) == 0 {
		return all, nil
	}
	if line, refused := resp.ErrorLine(reply); refused {
		return nil, &ReplyError{Line: line}
	}
	return nil, &ReplyError{Line: "ERR the reply of a lock script is neither an integer nor an array of integers"}
}

// parseNumber takes a line of that kind, with a number, off the beginning of b.
func parseNumber(kind byte, b []byte) (n int64, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 3 || b[0] != kind || b[end-1] != '\r' {
		return 0, nil, false
	}
	n, err := strconv.ParseInt(string(b[1:end-1]), 10, 64)
	return n, b[end+1:], err == nil
}
