package client

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Said is what a client has said of itself.
type Said struct {
	Name             string
	Library          [2]string         // name and version of the client library
	Parent           *telemetry.Parent // of the lock verbs' spans
	NoEvict, NoTouch bool
	WantsLossPush    bool // it asked for the news of lost locks
}

// Setting is something a client says of itself that this proxy keeps: at once, or, when it is said within a
// transaction, as soon as EXEC's reply shows that Redis has taken it.
type Setting struct {
	Of    SettingOf
	Value string
}

// SettingOf is what a client may say of itself.
type SettingOf uint8

// What a client may say of itself.
const (
	NoSetting SettingOf = iota
	SettingName
	SettingLibrary
	SettingVersion
	SettingParent // of its spans: a traceparent
	SettingNoEvict
	SettingNoTouch
	SettingLossPush
)

// Set notes what the client says of itself. Any goroutine may call it.
func (c *Client) Set(t Setting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch on := t.Value == "ON"; t.Of {
	case SettingName:
		c.said.Name = t.Value
	case SettingLibrary:
		c.said.Library[0] = t.Value
		if l := c.locks.Load(); l != nil {
			(*l).SetLibrary(t.Value != "")
		}
	case SettingVersion:
		c.said.Library[1] = t.Value
	case SettingParent:
		c.said.Parent, _ = telemetry.ReadParent(t.Value)
	case SettingNoEvict:
		c.said.NoEvict = on
	case SettingNoTouch:
		c.said.NoTouch = on
	case SettingLossPush:
		c.said.WantsLossPush = on
	}
}

// Said is what the client has said of itself. Any goroutine may call it.
func (c *Client) Said() Said {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// Name is the name that the client has given itself; "": none. Any goroutine may call it.
func (c *Client) Name() string { return c.Said().Name }

// Unsay forgets what the client has said of itself but for its library, as RESET does.
func (c *Client) Unsay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = Said{Library: c.said.Library}
}

// Traced has the spans that begin in the ctx it returns be below the one that the client has named with its
// traceparent.
func (c *Client) Traced(ctx context.Context) context.Context { return c.Said().Parent.Over(ctx) }
