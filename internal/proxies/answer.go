package proxies

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

const (
	// MostRows is how many locks or events an answer has, MostOf how many holders and waiters of each lock.
	MostRows, MostOf = 200, 100
	// mostText is how long the names that a client has chosen for itself are told, in bytes.
	mostText = 128
)

// Proxy is what a proxy says of itself.
type Proxy struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"` // the name of its machine
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Holds   int       `json:"holds"`
	Waits   int       `json:"waits"`
}

// valid says whether a proxy may have said that of itself.
func (p *Proxy) valid() bool {
	return lockstore.IsUUID(p.ID) && len(p.Host) <= mostText && len(p.Version) <= mostText
}

// Question is what is asked of each proxy: which of its locks, or of what has happened there, and how many.
type Question struct {
	Name  []byte `json:"name"`            // a part of the names of locks; or, with Exact, the name
	Exact bool   `json:"exact,omitempty"` // the lock of that name in the database DB
	DB    int    `json:"db,omitempty"`
	Sort  string `json:"sort,omitempty"` // name, held, or else by how long one has waited
	Locks int    `json:"locks"`
	Of    int    `json:"of"` // holders and waiters of each

	Events int       `json:"events,omitempty"` // no locks then
	Kind   string    `json:"kind,omitempty"`   // "": any
	Since  time.Time `json:"since,omitzero"`

	Here bool `json:"-"` // only this proxy is asked
}

// Answer is what a proxy answers.
type Answer struct {
	Proxy
	Of     int            `json:"of"` // so many locks, or events, are asked for; those that are told are the first of them
	Locks  []Lock         `json:"locks"`
	Events []events.Event `json:"events,omitempty"` // the newest first
}

// Lock is one lock, as proxies know it. Its times are in ms.
type Lock struct {
	Name    string       `json:"name"`
	Bytes   []byte       `json:"name_base64,omitempty"` // of a name that is no UTF-8
	DB      int          `json:"db"`
	Holding int          `json:"holding"` // so many hold it, and wait
	Waiting int          `json:"waiting"`
	Held    int64        `json:"held_ms"` // the longest of both
	Waited  int64        `json:"waiting_ms"`
	Holders []lock.Entry `json:"holders"`
	Waiters []lock.Entry `json:"waiters"`
}

// Bytes are those of a name that JSON cannot have as a text; nil: it can.
func Bytes(name string) []byte {
	if utf8.ValidString(name) {
		return nil
	}
	return []byte(name)
}

func clip(text string) string { return text[:min(len(text), mostText)] }

// text is the answer as JSON, with as many of its locks and events as fit.
func (a Answer) text() string {
	for {
		text, err := json.Marshal(a)
		n := len(a.Locks)
		switch {
		case err != nil:
			return "" // it has no value that JSON has not
		case len(text) <= mostAnswer:
			return string(text)
		case len(a.Events) > 0:
			a.Events = a.Events[:len(a.Events)*3/4]
		case n > 1:
			a.Locks = a.Locks[:n*3/4]
		default:
			l := &a.Locks[0]
			l.Holders, l.Waiters = l.Holders[:len(l.Holders)/2], l.Waiters[:len(l.Waiters)/2]
		}
	}
}

// read reads the text of an answer, and says whether a proxy may have said that.
func read(text string) (a Answer, ok bool) {
	if json.Unmarshal([]byte(text), &a) != nil || !a.valid() || len(a.Locks)+len(a.Events) > MostRows {
		return a, false
	}
	for i := range a.Events {
		a.Events[i].Proxy = a.ID
	}
	for i := range a.Locks {
		l := &a.Locks[i]
		if l.Bytes != nil {
			l.Name = string(l.Bytes)
		}
		for _, all := range [][]lock.Entry{l.Holders, l.Waiters} {
			if len(all) > MostOf {
				return a, false
			}
			for j := range all {
				e := &all[j]
				if e.Key, e.DB = l.Name, l.DB; e.OwnerBytes != nil {
					e.Owner = string(e.OwnerBytes)
				}
			}
		}
	}
	return a, true
}
