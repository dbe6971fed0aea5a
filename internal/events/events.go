// Package events keeps what has happened at a proxy, to locks, clients and the process, for those who ask afterwards:
// the latest in memory, and as lines of JSON to a writer. Nobody waits for either.
package events

import (
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
	Loss                 // a holder lost its lock
	Force                // a lock was freed by force
	Login                // a wrong password, or a wrong token at the page for operators
	Kill                 // a client was closed by another's CLIENT KILL
	Start                // the process serves
	Reload               // the settings were read again
	Rotation             // files of passwords or certificates were
	Pause                // clients are held back by LOCKPROXY PAUSE, or no longer
	Drain                // the process drains
	kinds
)

var kindNames = [kinds]string{"grant", "busy", "wait", "refusal", "release", "loss", "force", "login", "kill", "start",
	"reload", "rotation", "pause", "drain"}

func (k Kind) String() string { return kindNames[k] }

// Kinds are the names of all kinds.
func Kinds() []string { return kindNames[:] }

// Event is one thing that has happened, or that many others were left out of which there were too many.
type Event struct {
	ID     uint64 // counts events; Add sets it
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

// line is an event as JSON has it.
type line struct {
	ID     uint64  `json:"id"`
	At     string  `json:"at"`
	Event  string  `json:"event"`
	Verb   string  `json:"verb,omitempty"`
	Key    *string `json:"name,omitempty"`
	Bytes  []byte  `json:"name_base64,omitempty"` // of a name that is no UTF-8
	DB     *int    `json:"db,omitempty"`
	Side   string  `json:"kind,omitempty"`
	Owner  string  `json:"owner,omitempty"`
	Addr   string  `json:"addr,omitempty"`
	User   string  `json:"user,omitempty"`
	Name   string  `json:"client_name,omitempty"`
	Waited float64 `json:"waited_ms,omitempty"`
	Held   float64 `json:"held_ms,omitempty"`
	Reason string  `json:"reason,omitempty"`
	More   int64   `json:"more,omitempty"`
}

// Time is when it happened, as text.
func (e *Event) Time() string { return e.At.UTC().Format("2006-01-02T15:04:05.000000Z") }

// JSON is the event as encoding/json is to encode it.
func (e *Event) JSON() any {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	l := line{ID: e.ID, At: e.Time(), Event: e.Kind.String(), Verb: e.Verb,
		Side: e.Side, Owner: e.Owner, Addr: e.Addr, User: e.User, Name: e.Name, Waited: ms(e.Waited), Held: ms(e.Held),
		Reason: e.Reason, More: e.More}
	if e.Lock {
		l.Key, l.DB = &e.Key, &e.DB
		if !utf8.ValidString(e.Key) {
			l.Bytes = []byte(e.Key)
		}
	}
	return &l
}
