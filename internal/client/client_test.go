package client

import (
	"context"
	"errors"
	"testing"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// newClient is a client whose replies are gathered and written nowhere.
func newClient() *Client {
	c := New(&Process{Context: context.Background(), Relearn: make(chan struct{}, 1)}, new(downstream.Conn), 7,
		upstream.Identity{Proto: 2})
	c.Out = &Output{To: c.Conn}
	return c
}

// CLIENT REPLY decides about what follows it, and SKIP about one command only.
func TestWhichRepliesAreWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said []ReplyMode
		want Replies
	}{
		"nothing":           {nil, Replies{}},
		"OFF":               {[]ReplyMode{RepliesOff}, Replies{Silent: true, off: true}},
		"OFF, ON":           {[]ReplyMode{RepliesOff, RepliesOn}, Replies{}},
		"SKIP":              {[]ReplyMode{RepliesSkip}, Replies{Skip: true}},
		"OFF, SKIP: no use": {[]ReplyMode{RepliesOff, RepliesSkip}, Replies{Silent: true, off: true}},
	} {
		x := newClient()
		x.Out = nil // nothing is gathered
		for _, m := range c.said {
			x.SetReplies(m)
		}
		if x.Replies != c.want {
			t.Errorf("%s: %+v, want %+v", name, x.Replies, c.want)
		}
		x.WithoutReply(func() {
			if !x.Replies.Silent {
				t.Errorf("%s: the command behind SKIP is answered", name)
			}
		})
		if x.Replies.Silent != c.want.off || x.Replies.Skip {
			t.Errorf("%s: behind that command %+v", name, x.Replies)
		}
		if x.ResetReplies(); x.Replies != (Replies{}) {
			t.Errorf("%s: after RESET %+v", name, x.Replies)
		}
	}
}

// holds is a client that has so many locks.
type holds int

func (h holds) Held() int       { return int(h) }
func (holds) LeaveToExpire()    {}
func (holds) SetLibrary(_ bool) {}

// A client is closed where Redis would have closed it, unless its locks would end with its connection.
func TestWhoIsClosedForALoss(t *testing.T) {
	t.Parallel()
	lost := &upstream.LostError{Cause: errors.New("broken")}
	for name, c := range map[string]struct {
		err    error
		held   int
		untold bool
		closes bool
	}{
		"a lost connection":              {err: lost, closes: true},
		"what was not sent":              {err: &upstream.NotSentError{Cause: errors.New("refused")}, closes: true},
		"a holder of locks":              {err: lost, held: 1},
		"a loss that it was not told of": {err: lost, untold: true},
		"an answer of Redis'":            {err: &upstream.ReplyError{Line: "ERR no"}},
		"a time-out":                     {err: &upstream.LostError{Cause: upstream.ErrTimeout}},
		"no room for a connection":       {err: new(upstream.FullError)},
	} {
		x := newClient()
		x.HasLocks(holds(c.held))
		if c.untold {
			x.LostOne()
		}
		x.Fail(c.err)
		if answered := len(x.Out.Bytes) > 0; x.End.Over() != c.closes || x.Replies.Finish != c.closes || answered == c.closes {
			t.Errorf("%s: closed %v, answered %q", name, x.End.Over(), x.Out.Bytes)
		}
		if x.Told(); x.Lockless() != (c.held == 0) {
			t.Errorf("%s: once told, lockless %v", name, x.Lockless())
		}
	}
}

// What a client was called and has asked for ends with RESET, but for its library, and pushes with a change to RESP2.
func TestWhatIsSaidOfAClient(t *testing.T) {
	t.Parallel()
	c := newClient()
	for of, value := range map[SettingOf]string{SettingName: "me", SettingLibrary: "py", SettingVersion: "1", SettingNoEvict: "ON",
		SettingNoTouch: "ON", SettingLossPush: "ON"} {
		c.Set(Setting{Of: of, Value: value})
	}
	if want := (Said{"me", [2]string{"py", "1"}, nil, true, true, true}); c.Said() != want {
		t.Errorf("%+v, want %+v", c.Said(), want)
	}
	if c.Unsay(); c.Said() != (Said{Library: [2]string{"py", "1"}}) {
		t.Errorf("after RESET %+v", c.Said())
	}
	c.SetIdentity(upstream.Identity{User: "ann", Proto: 3})
	if c.TakesPushes() {
		t.Error("pushes come before the answer to HELLO")
	}
	if c.Greeted(); !c.TakesPushes() {
		t.Error("no pushes in RESP3")
	}
	if c.SetIdentity(upstream.Identity{Proto: 2}); c.TakesPushes() || c.User() != "default" {
		t.Errorf("%s takes pushes in RESP2", c.User())
	}
}

// Steps are numbered, and 0 while nothing is under way.
func TestSteps(t *testing.T) {
	t.Parallel()
	var s Steps
	first, second := s.Next(), s.Next()
	if s.Now() != second || second == first {
		t.Errorf("steps %d and %d, now %d", first, second, s.Now())
	}
	if s.Rest(); s.Now() != 0 || s.Next() == second {
		t.Error("a step after a rest is another one")
	}
}
