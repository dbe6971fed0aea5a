package session

import (
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/own"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// What a client's own connections ask of its session: see own.Host.

var _ own.Host = host{}

// Forward implements own.Host.
func (h host) Forward() {
	if h.batch != nil { // else no command is at work
		h.forward()
	}
}

// Next implements own.Host.
func (h host) Next() []redcon.Command { return h.batch.next }

// Ask implements own.Host.
func (h host) Ask(words ...[]byte) ([]byte, error) { return h.askAt(backend.Place{}, words...) }

// Answer implements own.Host.
func (h host) Answer(add func(out []byte) []byte) { h.batch.Out = add(h.batch.Out) }

// Push implements own.Host.
func (h host) Push(frame []byte) {
	silent := h.replies.silent
	if silent {
		h.flush()
	}
	h.batch.Out = append(h.batch.Out, frame...)
	if silent {
		h.batch.Flush(false)
	}
}

// Fail implements own.Host.
func (h host) Fail(err error) { h.fail(err) }

// Queued implements own.Host.
func (h host) Queued(c *commandtable.Command, cmd redcon.Command, name string) ([]byte, dedicated.Effect) {
	e := effectOf(c, cmd.Args)
	if commands.Withheld(c.Name, cmd.Args) {
		return resp.AppendCommand(nil, c.Probe...), e // in its place a call that Redis refuses
	}
	return h.queuedAs(c, cmd.Raw, e, name), e
}

// effectOf returns what a command does to the connection if a transaction runs it; otherwise
// lockproxy answers such a command itself.
func effectOf(c *commandtable.Command, args [][]byte) dedicated.Effect {
	switch {
	case c.Name == "select" && len(args) == 2:
		n, ok := resp.Integer(args[1])
		return dedicated.Effect{Selects: ok, DB: int(n)}
	case c.Name == "client|pause":
		return dedicated.Effect{Pauses: commands.WritePause(args)}
	}
	return dedicated.Effect{Setting: commands.SettingIn(c.Name, args)}
}

// Selected implements own.Host.
func (h host) Selected(db int) {
	id := h.ident
	id.DB = db
	h.identity(id)
}

// Doubt implements own.Host: this client's locks then expire, and are not released.
func (h host) Doubt() {
	if l := h.locks.engine.Load(); l != nil {
		l.LeaveToExpire()
	}
}

// Watch implements own.Host.
func (h host) Watch(run func(context.Context)) { h.watched(run) }

// Client implements own.Host.
func (h host) Client(id int64) *own.Connections {
	if c := h.srv.session(id); c != nil {
		return c.own
	}
	return nil
}

// IdentityNow implements own.Host.
func (h host) IdentityNow() upstream.Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ident
}

// TakesPushes implements own.Host.
func (h host) TakesPushes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pushes.resp3
}

// Holds implements own.Host.
func (h host) Holds() bool { return h.held() > 0 }

// Lockless implements own.Host.
func (h host) Lockless() bool { return h.lockless() }

// Closes implements own.Host.
func (h host) Closes(err error) bool { return h.closesFor(err) }

// Timed implements own.Host.
func (h host) Timed(c *commandtable.Command, call string, took time.Duration) {
	family := telemetry.Other
	if c != nil {
		family = c.Family
	}
	family.Upstream(took)
	if h.srv.slow(took) {
		h.noteSlow(took, took, c, wordsIn(call), 1)
	}
}

// Set implements own.Host.
func (h host) Set(pauses time.Duration, settings []dedicated.Setting) {
	h.srv.pauseWrites(pauses)
	for _, t := range settings {
		h.Session.Set(t)
	}
}

// Shutting implements own.Host.
func (h host) Shutting(more int) { h.srv.writes.shutting.Add(int64(more)) }

// RightsChanged implements own.Host.
func (h host) RightsChanged(r backend.RightsChange) { h.srv.rightsChanged(r) }

// LearnAgain implements own.Host.
func (h host) LearnAgain() { h.srv.learnAgain() }
