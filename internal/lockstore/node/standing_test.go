package node

import (
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestStanding: what becomes of what is known of a node, event by event. Each event comes a second after the one before, unless it says otherwise.
func TestStanding(t *testing.T) {
	const (
		commandRefused = "NOPERM the service account can't run this command or subcommand"
		noLock         = "ERR unknown redis command, so no lock is given that could not be given back"
		keyRefused     = "NOPERM the service account has no permissions to access the 'x' key"
		keysRefused    = "NOPERM the service account can't access at least one of the keys mentioned in the command arguments"
	)
	var (
		now     time.Time
		full    = &upstream.ReplyError{Line: "OOM command not allowed when used memory > 'maxmemory'."}
		away    = errors.New("no answer")
		asked   = func(s standing) standing { return s.asked(now) }
		answers = func(f found) func(standing) standing {
			return func(s standing) standing { return s.afterAnswer(f, 0, now) }
		}
		fails = func(err error) func(standing) standing {
			return func(s standing) standing { return s.unanswered(err, now) }
		}
		refuses = func(line string) func(standing) standing {
			return func(s standing) standing { return s.refused(line, now) }
		}
		tries = func(err error) func(standing) standing {
			return func(s standing) standing { return s.tried(err) }
		}
		after = func(d time.Duration, event func(standing) standing) func(standing) standing {
			return func(s standing) standing { now = now.Add(d - time.Second); return event(s) }
		}
		all     = answers(found{})
		cannot  = answers(found{cannot: "ERR unknown redis command"})
		changes = standing.outdated
	)
	type events = []func(standing) standing
	for _, c := range []struct {
		name    string
		events  events
		fresh   bool   // nobody waits for a question
		due     bool   // but one is put
		refusal string // for which no lock is given
		able    string // why none can be had, as operators see it
	}{
		{"nothing is known", nil, false, true, "", lockstore.ErrUntried.Error()},
		{"all is there", events{asked, all}, true, false, "", ""},
		{"it is asked again every ten seconds", events{asked, all, after(askedEvery+time.Second, asked)}, true, true, "", ""},
		{"a right or a command is missing", events{asked, cannot}, true, true, noLock, noLock},
		{"it is there again", events{asked, cannot, asked, all}, true, false, "", ""},
		{"no answer: locks are tried all the same", events{asked, fails(away)}, false, true, "", "no answer"},
		{"no answer later: what is known stays", events{asked, cannot, asked, fails(away)}, true, true, noLock, noLock},
		{"Redis is full: locks are tried all the same", events{asked, all, asked, fails(full)}, true, false, "", full.Line},
		{"the slot of the trial lock moves", events{asked, all, asked, fails(&upstream.ReplyError{Line: "MOVED 1 127.0.0.1:1"})}, true, false, "", ""},
		{"its clock cannot be read", events{asked, all, tries(away)}, true, false, "", "no answer"},
		{"another node may be there", events{asked, all, changes}, false, true, "", ""},
		{"and it has answered", events{asked, all, changes, asked, all}, true, false, "", ""},
		{"it may be another while it is asked", events{asked, changes, all}, false, true, "", ""},
		{"that question got no answer", events{asked, all, changes, asked, fails(away)}, false, true, "", "no answer"},
		{"a command is refused", events{asked, all, refuses(commandRefused)}, false, true, "", ""},
		{"a command is refused, as was to be expected", events{asked, cannot, refuses(commandRefused)}, true, true, noLock, noLock},
		{"a key is refused, a moment after the question", events{asked, after(0, all), after(time.Millisecond, refuses(keyRefused))}, true, true, "", ""},
		{"keys are refused, a moment after the question", events{asked, after(0, all), after(time.Millisecond, refuses(keysRefused))}, true, true, "", ""},
		{"a key is refused, later", events{asked, all, refuses(keyRefused)}, false, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			now = time.Unix(1e9, 0)
			var s standing
			for _, event := range c.events {
				now = now.Add(time.Second)
				s = event(s)
			}
			if s.fresh != c.fresh || s.due(0, now) != c.due || text(s.refusal()) != c.refusal || text(s.able()) != c.able {
				t.Errorf("fresh %v, due %v, refusal %q, able %q", s.fresh, s.due(0, now), text(s.refusal()), text(s.able()))
			}
			if !s.due(1, now) {
				t.Error("another master's account is not asked about")
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestNobodyWaitsForASilentNode: after a question without an answer nobody waits for the next one, for a moment.
func TestNobodyWaitsForASilentNode(t *testing.T) {
	now := time.Now()
	s := standing{}.asked(now).unanswered(errors.New("no answer"), now)
	if !s.silent(now.Add(askPause-1)) || s.silent(now.Add(askPause)) {
		t.Error(s)
	}
}

// TestLacking: these are refusals for a missing right or command, and others are not.
func TestLacking(t *testing.T) {
	for line, yes := range map[string]bool{
		"NOPERM the service account can't run this command or subcommand":   true,
		"ERR Unknown Redis command called from script":                      true,
		"ERR unknown command 'RPUSH', with args beginning with: 'k'":        true,
		"WRONGTYPE Operation against a key holding the wrong kind of value": false,
		"OOM command not allowed":                                           false,
	} {
		if _, is := lacking(&upstream.ReplyError{Line: line}); is != yes {
			t.Errorf("%s: %v", line, is)
		}
	}
}
