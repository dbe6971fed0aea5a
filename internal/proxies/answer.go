package proxies

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

const (
	// MostLocks is how many locks an answer has, MostOf how many holders and waiters of each.
	MostLocks, MostOf = 200, 100
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

// Question is what is asked of each proxy: which of its locks, and how many.
type Question struct {
	Name  Text   `json:"name"`            // a part of their names; or, with Exact, the name
	Exact bool   `json:"exact,omitempty"` // the lock of that name in the database DB
	DB    int    `json:"db,omitempty"`
	Sort  string `json:"sort,omitempty"` // name, held, or else by how long one has waited
	Locks int    `json:"locks"`
	Of    int    `json:"of"` // holders and waiters of each
}

// Text is any bytes.
type Text string

// MarshalText implements encoding.TextMarshaler.
func (t Text) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(t)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Text) UnmarshalText(text []byte) error {
	all, err := base64.StdEncoding.DecodeString(string(text))
	*t = Text(all)
	return err
}

// Answer is what a proxy answers.
type Answer struct {
	Proxy
	Of    int          `json:"of"`     // so many locks are asked for; those that are told are the first of them
	Age   int64        `json:"age_ms"` // since this was so
	Locks atMost[Lock] `json:"locks"`
}

// Lock is one lock, as proxies know it.
type Lock struct {
	Text    string        `json:"name"`                  // its beginning, with U+FFFD, if it is no UTF-8
	Bytes   []byte        `json:"name_base64,omitempty"` // what it is then
	DB      int           `json:"db"`
	Holding int           `json:"holding"` // so many hold it, and wait
	Waiting int           `json:"waiting"`
	Held    int64         `json:"held_ms"` // the longest of both
	Waited  int64         `json:"waiting_ms"`
	Holders atMost[Entry] `json:"holders"`
	Waiters atMost[Entry] `json:"waiters"`
}

// Name is its name.
func (l *Lock) Name() string { return nameOf(l.Text, l.Bytes) }

// Entry is one who holds a lock, or waits for it. Its fields are those of LOCKPROXY LOCKS and WAITERS.
type Entry struct {
	Owner      string `json:"owner"`
	OwnerBytes []byte `json:"owner_base64,omitempty"`
	Kind       string `json:"kind"` // plain, read or write; fair: it waits in the fair queue
	Proxy      string `json:"proxy"`
	Client     int64  `json:"client_id"`
	Addr       string `json:"addr"`
	Name       string `json:"name"`
	User       string `json:"user"`
	Held       int64  `json:"held_ms,omitempty"`
	Waited     int64  `json:"waiting_ms,omitempty"`
	Place      int    `json:"place,omitempty"`
	Holds      int64  `json:"holds,omitempty"`
	Left       int64  `json:"ttl_ms,omitempty"`
	Lease      int64  `json:"lease_ms,omitempty"`
	Watched    bool   `json:"watched,omitempty"`
	Renewals   int64  `json:"renewals,omitempty"`
	Renewed    *int64 `json:"renewed_ms_ago,omitempty"` // nil: never
}

// Of is its owner.
func (e *Entry) Of() string { return nameOf(e.Owner, e.OwnerBytes) }

// EntryOf is what the proxy with that id tells of an entry.
func EntryOf(e lock.Entry, proxy string) Entry {
	told := Entry{Kind: e.Kind.String(), Proxy: proxy, Client: e.ClientID, Addr: clip(e.Addr), Name: clip(e.Name), User: clip(e.User)}
	told.Owner, told.OwnerBytes = Named(e.Owner)
	if e.Fair {
		told.Kind = "fair"
	}
	if e.Waiting {
		told.Waited, told.Place = e.Held.Milliseconds(), e.Place
		return told
	}
	told.Held, told.Holds, told.Left = e.Held.Milliseconds(), e.Holds, e.Left.Milliseconds()
	told.Lease, told.Watched, told.Renewals = e.Lease.Milliseconds(), e.Watched, e.Renewals
	if !e.Renewed.IsZero() {
		ago := time.Since(e.Renewed).Milliseconds()
		told.Renewed = &ago
	}
	return told
}

// Named is a name as a text for JSON; if it is no UTF-8, its beginning and all its bytes.
func Named(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return clip(name), []byte(name)
}

func nameOf(text string, raw []byte) string {
	if raw != nil {
		return string(raw)
	}
	return text
}

func clip(text string) string { return text[:min(len(text), mostText)] }

// atMost is a list of which no more is read than an answer may have.
type atMost[T any] []T

var errMany = errors.New("more than an answer may have")

// UnmarshalJSON implements json.Unmarshaler.
func (l *atMost[T]) UnmarshalJSON(text []byte) error {
	in, most := json.NewDecoder(bytes.NewReader(text)), MostOf
	if _, locks := any(*l).(atMost[Lock]); locks {
		most = MostLocks
	}
	if open, err := in.Token(); err != nil || open != json.Delim('[') {
		return err // null is none
	}
	*l = atMost[T]{}
	for in.More() {
		if len(*l) == most {
			return errMany
		}
		var one T
		if err := in.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}
