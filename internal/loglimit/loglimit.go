// Package loglimit bounds how much others can make the log grow: lines that say the same, whatever they say it of, are written a few times
// in a while and then left out. The last one says so, and the next one that is written how many were.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// usual is how many lines with the same message are written in a period.
	usual  = 8
	period = 10 * time.Second
	// mostKinds is how many messages are remembered.
	mostKinds = 1024
)

// Handler is a slog.Handler that leaves lines out. Those below slog.LevelInfo are for somebody who wants to see everything: they are not counted.
type Handler struct {
	slog.Handler
	kinds *kinds
	most  int
}

// New returns a Handler before to.
func New(to slog.Handler) Handler {
	return Handler{to, &kinds{byMessage: map[string]*kind{}}, usual}
}

// Most returns a logger like log that leaves out fewer lines: of each kind most are written in a period. It is log itself if there is no Handler
// behind it.
func Most(log *slog.Logger, most int) *slog.Logger {
	h, limited := log.Handler().(Handler)
	if !limited {
		return log
	}
	h.most = most
	return slog.New(h)
}

// Handle implements slog.Handler.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.Handler.Handle(ctx, r)
	}
	nth, leftOut := h.kinds.countLine(r.Message, h.most, time.Now())
	if nth > h.most {
		return nil
	}
	r = r.Clone()
	if leftOut > 0 {
		r.AddAttrs(slog.Int("others-since-last-told", leftOut))
	}
	if nth == h.most {
		r.AddAttrs(slog.Duration("others-left-out-for", period))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// kind is the lines with one message.
type kind struct {
	until time.Time // the end of the present period
	lines int       // in it
}

type kinds struct {
	mu        sync.Mutex // guards all below; a leaf
	byMessage map[string]*kind
}

// countLine counts one line: it is the nth of its kind in this period. leftOut is how many were left out in the one before.
func (k *kinds) countLine(message string, most int, now time.Time) (nth, leftOut int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.byMessage[message]
	if one == nil {
		if len(k.byMessage) >= mostKinds {
			clear(k.byMessage)
		}
		one = &kind{}
		k.byMessage[message] = one
	}
	if !now.Before(one.until) {
		leftOut = max(0, one.lines-most)
		one.until, one.lines = now.Add(period), 0
	}
	one.lines++
	return one.lines, leftOut
}
