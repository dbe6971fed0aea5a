// Package events keeps what has happened at a proxy, to locks, clients and the process, for those who ask afterwards:
// the latest in memory, and as lines of JSON to a writer. Nobody waits for either.
package events

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind is what has happened.
type Kind uint8

// The kinds. A verb that asks for a lock ends as one of the first four.
const (
	Grant    Kind = iota // it has the lock
	Busy                 // it was answered nil: somebody else has the lock
	Wait                 // either of them, after it has waited for long; or its client has gone meanwhile
	Refusal              // an error; or a client that is not let in, or a command that is too many for its user's share
	Release              // a lock was given back that was held for long
	End                  // a lock ended as was asked for: its lease is over, or it was freed by force
	Loss                 // a holder lost its lock
	Force                // a lock was freed by force
	Login                // a wrong password, or a wrong token at the page for operators
	Kill                 // a client was closed by another's CLIENT KILL, or from the page
	Act                  // an operator has asked for what is in Reason
	Start                // the process serves
	Reload               // the settings were read again
	Rotation             // files of passwords or certificates were
	Drain                // the process drains
	kinds
)

var kindNames = [kinds]string{"grant", "busy", "wait", "refusal", "release", "end", "loss", "force", "login", "kill", "act", "start",
	"reload", "rotation", "drain"}

func (k Kind) String() string { return kindNames[k] }

// Kinds are the names of all kinds.
func Kinds() []string { return kindNames[:] }

// Event is one thing that has happened, or that many others were left out of which there were too many.
type Event struct {
	ID     uint64 // counts the events that are kept; Add sets it
	At     time.Time
	Kind   Kind
	Verb   string // of the client
	Lock   bool   // it is about a lock, which may have no name
	Key    string
	DB     int
	Side   string // what kind of lock it is
	Owner  string
	Client // that asked, that held the lock, or that it happened to

	Waited time.Duration // by a verb
	Held   time.Duration // by the holder of a lock
	Reason string        // why, or what besides
	More   int64         // so many more of this kind were left out; there is nothing else then
}

// Client is who a client is.
type Client struct{ Addr, User, Name string }

// How long texts of an event may be, in bytes. Strangers choose some.
const (
	longestKey  = 4096
	longestText = 256
)

// clip makes a text no longer than most. What is kept does not keep the rest.
func clip(text *string, most int) {
	if len(*text) > most {
		*text = strings.Clone((*text)[:most])
	}
}

// bound makes an event small, and returns about how many bytes it takes.
func (e *Event) bound() (size int) {
	clip(&e.Key, longestKey)
	size = 256 + len(e.Key)
	for _, text := range []*string{&e.Owner, &e.Addr, &e.User, &e.Name, &e.Reason} {
		clip(text, longestText)
		size += len(*text)
	}
	return size
}

// source is whose events of a kind share a bound: a lock's, or an address'.
func (e *Event) source() string {
	if e.Key != "" {
		return e.Key
	}
	return e.Addr[:max(0, strings.LastIndexByte(e.Addr, ':'))]
}

// Time is when it happened, as text.
func (e *Event) Time() string { return e.At.UTC().Format("2006-01-02T15:04:05.000000Z") }

// newHandler writes events as lines of JSON.
func newHandler(to io.Writer) slog.Handler {
	return slog.NewJSONHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			a.Key = "at"
		case slog.MessageKey:
			a.Key = "event"
		case slog.LevelKey:
			return slog.Attr{}
		}
		return a
	}})
}

// record is the event as a line has it. What is empty is left out.
func (e *Event) record() slog.Record {
	r := slog.NewRecord(e.At.UTC(), slog.LevelInfo, e.Kind.String(), 0)
	text := func(name, text string) {
		if text != "" {
			r.AddAttrs(slog.String(name, text))
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			r.AddAttrs(slog.Int64(name, n))
		}
	}
	r.AddAttrs(slog.Uint64("id", e.ID))
	text("verb", e.Verb)
	if e.Lock {
		r.AddAttrs(slog.String("name", e.Key), slog.Int("db", e.DB))
		if !utf8.ValidString(e.Key) {
			text("name_base64", base64.StdEncoding.EncodeToString([]byte(e.Key)))
		}
	}
	text("kind", e.Side)
	text("owner", e.Owner)
	text("addr", e.Addr)
	text("user", e.User)
	text("client_name", e.Name)
	number("waited_ms", e.Waited.Milliseconds())
	number("held_ms", e.Held.Milliseconds())
	text("reason", e.Reason)
	number("more", e.More)
	return r
}

// MarshalJSON returns the line of the event.
func (e *Event) MarshalJSON() ([]byte, error) {
	var line bytes.Buffer
	err := newHandler(&line).Handle(context.Background(), e.record())
	return line.Bytes(), err
}
