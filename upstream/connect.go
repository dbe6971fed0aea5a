package upstream

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// The back-off after failed attempts to connect, before jitter.
const (
	firstDelay = 10 * time.Millisecond
	maxDelay   = 500 * time.Millisecond
	// wantedDelay is the longest back-off once somebody asks for the connection, unless
	// Redis has refused: an error about Redis is then not much older than the request.
	wantedDelay = 100 * time.Millisecond
)

// useful is how long a connection must have lasted, if it gave no reply, to
// count as a success. A connection that Redis ends at once must not be made
// again without a back-off.
const useful = time.Second

// keepConnected is the pipe's goroutine: it connects, reads the replies until the
// connection ends, and connects again, for as long as the pipe has users.
func (p *Pipe) keepConnected() {
	defer p.share.give()
	defer p.move(ended, nil)
	defer p.stop()
	failures := retry.Backoff{First: firstDelay, Most: maxDelay}
	for {
		moved := p.node.target.masterChanged()
		served, err := p.runLink()
		if p.ctx.Err() != nil {
			return
		}
		if p.failed(err) {
			telemetry.PipeFailures.Add(1)
		}
		if served {
			failures.Reset()
			if p.node.forgetIdle(p) {
				return
			}
			p.log(lossLevel(err), "connection to Redis lost", "error", err)
		} else {
			level := slog.LevelDebug
			first := !failures.Failed() && Refused(err) == nil // a refusal is no warning: it concerns one user only
			if first && p.node.contact.told.CompareAndSwap(false, true) {
				level = slog.LevelWarn
			}
			p.log(level, "no connection to Redis", "error", err)
			p.tellRefused(err)
			if !p.rest(failures.Next(), err, moved) {
				return
			}
		}
		p.move(connecting, err)
	}
}

// failed says that err, which ended a connection or an attempt to make one, is a failure of Redis or of the way to it.
// What Redis refuses to one user is none.
func (p *Pipe) failed(err error) bool {
	re := Refused(err)
	return lossLevel(err) == slog.LevelWarn && (re == nil || !re.ofUser() || p.id.isService(p.node.target))
}

// lossLevel is the log's level for the end of a connection. It is a warning unless lockproxy itself has ended the
// connection, because rights or passwords have changed or because its client has gone, or Redis has closed one that
// nobody used.
func lossLevel(err error) slog.Level {
	switch {
	case errors.Is(err, errUnused):
		return slog.LevelDebug
	case errors.Is(err, errRenewed), errors.Is(err, ErrLeft):
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// runLink makes one attempt. It returns when the attempt has failed or the
// connection has ended; served says whether that connection was of any use.
func (p *Pipe) runLink() (served bool, err error) {
	c, err := p.connectLink()
	if err != nil {
		return false, err
	}
	conn, term := c.detach() // its end has its cause by the link
	telemetry.Pipes.Add(1)
	defer telemetry.Pipes.Add(-1)
	l := newLink(conn, p.kind == sharedPipe, p.node.opts.MaxInflight)
	l.refused, l.spills = c.lookAt, p.id.For == Scripts
	p.link.Store(l)
	defer context.AfterFunc(term, func() { l.fail(context.Cause(term)) })()
	told := p.node.contact.told.Swap(false)
	switch again, lost := p.move(up, nil); {
	case again:
		telemetry.PipeReconnects.Add(1)
		p.log(min(slog.LevelInfo, lossLevel(lost)), "connected to Redis again")
	case told: // the log has said that there is no connection
		p.log(slog.LevelInfo, "connected to Redis")
	}
	if p.ctx.Err() != nil { // close looked for a link before this one was there
		l.fail(ErrClosed)
	}
	since := time.Now()
	err = l.serve()
	p.noteLoss(err)
	p.link.Store(nil)
	return l.replied.Load() || time.Since(since) > useful, err
}

// connectLink makes the pipe's connection. One that was lost is made again by id's password only: if that is not valid any
// more its clients have to log in again, as at Redis. So is one that only makes things quicker.
func (p *Pipe) connectLink() (c *termConn, err error) {
	if p.state().connected || !p.ofClients() || p.id.quicker(p.kind) {
		return connect(p.ctx, p.node.target, p.id, p.node.opts.DialTimeout)
	}
	c, _, err = p.node.connectMore(p.ctx, p.id)
	return c, err
}

// noteLoss notes, for contact.lately, that Redis was there until now. That is also so when the connection is replaced
// because rights or passwords have changed, but not when it was ended here, by close or for one client's sake. A
// cluster's nodes are left out: the slots of a node that is away soon belong to another.
func (p *Pipe) noteLoss(err error) {
	here := p.ctx.Err() != nil || Ended(err)
	if !here && p.node.target.NodeID == "" {
		p.node.contact.lost.Store(new(time.Now()))
	}
}

// rest waits between two attempts: for the back-off, which ends early when Redis has moved since the attempt began, and
// after a refusal also until somebody asks for the identity again. It says whether to go on.
func (p *Pipe) rest(delay time.Duration, cause error, moved <-chan struct{}) bool {
	refused, early := Refused(cause) != nil, p.demand
	if refused {
		early = nil
	}
	p.move(backingOff, cause)
	slept := p.sleep(min(delay, wantedDelay), nil, moved) && p.sleep(delay-wantedDelay, early, moved)
	if !slept || p.node.forgetIdle(p) {
		return false
	}
	if !refused {
		return true
	}
	select { // this refusal answers a demand that came before it
	case <-p.demand:
	default:
	}
	p.move(resting, cause)
	if p.node.forgetIdle(p) { // its last user has left since
		return false
	}
	return p.sleep(math.MaxInt64, p.demand, moved) // another Redis may not refuse
}

// sleep waits for d, if that is above 0, or until somebody wants the pipe or Redis has moved. false: the pipe was
// closed.
func (p *Pipe) sleep(d time.Duration, wanted, moved <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wanted:
	case <-moved:
	case <-p.ctx.Done():
		return false
	}
	return true
}

// move changes the phase and wakes those who wait for that. It says whether the pipe had been up before, and the cause
// of the phase that ends.
func (p *Pipe) move(to phase, cause error) (again bool, before error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to == connecting {
		p.attempt++
	}
	if again = p.connected; to == up {
		p.connected = true
	}
	before = p.cause
	p.phase, p.cause = to, cause
	close(p.changed)
	p.changed = make(chan struct{})
	return again, before
}

func (p *Pipe) log(level slog.Level, text string, args ...any) {
	args = append(args, "upstream", p.node.target.String(), "user", p.id.User, "db", p.id.DB, "proto", p.id.Proto)
	p.node.opts.Logger.Log(p.ctx, level, text, args...)
}
