// Package events keeps what has happened at a proxy, to locks, clients and the process, for those who ask afterwards:
// the latest in memory, and as lines of JSON to a writer. Nobody waits for either.
package events

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind is what has happened.
type Kind uint8

// The kinds. A verb that asks for a lock ends as one of the first four after unknown.
const (
	unknown  Kind = iota // one that only another proxy knows
	Grant                // it has the lock
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

var kindNames = [kinds]string{"unknown", "grant", "busy", "wait", "refusal", "release", "end", "loss", "force", "login", "kill", "act", "start",
	"reload", "rotation", "drain"}

func (k Kind) String() string { return kindNames[k] }

// Kinds are the names of all kinds.
func Kinds() []string { return kindNames[unknown+1:] }

// MarshalText returns the name of the kind.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads it.
func (k *Kind) UnmarshalText(name []byte) error {
	*k = Kind(max(0, slices.Index(kindNames[:], string(name))))
	return nil
}

// Event is one thing that has happened, or that many others were left out of which there were too many.
type Event struct {
	At     time.Time `json:"at"`
	Kind   Kind      `json:"event"`
	Proxy  string    `json:"proxy,omitempty"` // at which it has happened; "": at this one
	ID     uint64    `json:"id"`              // counts the events that are kept; Add sets it
	Verb   string    `json:"verb,omitempty"`  // of the client
	Lock   bool      `json:"-"`               // it is about a lock, which may have no name
	Key    string    `json:"-"`
	DB     int       `json:"-"`
	Side   string    `json:"kind,omitempty"` // what kind of lock it is
	Owner  string    `json:"owner,omitempty"`
	Client           // that asked, that held the lock, or that it happened to

	Waited time.Duration `json:"-"`                // by a verb
	Held   time.Duration `json:"-"`                // by the holder of a lock
	Reason string        `json:"reason,omitempty"` // why, or what besides
	More   int64         `json:"more,omitempty"`   // so many more of this kind were left out; there is nothing else then
}

// Client is who a client is.
type Client struct {
	Addr string `json:"addr,omitempty"`
	User string `json:"user,omitempty"`
	Name string `json:"client_name,omitempty"`
}

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

// line is an event as JSON. What is empty is left out.
type line struct {
	*plain
	Name   *string `json:"name,omitempty"` // of a lock, which may be empty
	Bytes  []byte  `json:"name_base64,omitempty"`
	DB     *int    `json:"db,omitempty"`
	Waited int64   `json:"waited_ms,omitempty"`
	Held   int64   `json:"held_ms,omitempty"`
}

// plain is what a line has of an event as it is.
type plain Event

// MarshalJSON returns the line of the event.
func (e *Event) MarshalJSON() ([]byte, error) {
	l := line{plain: (*plain)(e), Waited: e.Waited.Milliseconds(), Held: e.Held.Milliseconds()}
	if e.Lock {
		l.Name, l.DB = &e.Key, &e.DB
	}
	if !utf8.ValidString(e.Key) {
		l.Bytes = []byte(e.Key)
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	err := out.Encode(l)
	return text.Bytes(), err
}

// UnmarshalJSON reads such a line.
func (e *Event) UnmarshalJSON(text []byte) error {
	l := line{plain: (*plain)(e)}
	err := json.Unmarshal(text, &l)
	if e.Lock = l.Name != nil && l.DB != nil; e.Lock {
		e.Key, e.DB = *l.Name, *l.DB
	}
	if l.Bytes != nil {
		e.Key = string(l.Bytes)
	}
	e.Waited, e.Held = time.Duration(l.Waited)*time.Millisecond, time.Duration(l.Held)*time.Millisecond
	return err
}
