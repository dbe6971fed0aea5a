package proxies

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
)

const (
	// goneFor is for how long it is known of a proxy that it was there, mostGone of how many.
	goneFor, mostGone = time.Hour, 16
	// mostProxies is how many are known at most, mostNameless how many of those are shown that have not said their name.
	mostProxies, mostNameless = 256, 16
)

// silent is the trouble of a proxy that listens and does not answer.
const silent = "it does not answer"

// State is how a proxy is, as far as this one knows.
type State struct {
	Proxy
	State    string    `json:"state"` // self, up, down or gone
	Since    time.Time `json:"since"` // it has been so
	Trouble  string    `json:"trouble,omitempty"`
	heard    time.Time // when it last said anything
	answered string    // the id of the question that it has answered last
}

// Title is how people are told which proxy it is.
func (s *State) Title() string {
	if s.ID == "" {
		return "a proxy that has not said its name"
	}
	return s.Host + " " + s.ID[:8]
}

// Overview is what all proxies have answered to a question.
type Overview struct {
	Locks   []Lock
	Events  []events.Event
	Of      int       // so many there are; a lock that several proxies know counts once for each, unless it is shown
	Proxies []State   // this one first, then those that are there
	At      time.Time // when they were asked
}

// Silent are those that have not answered.
func (v *Overview) Silent() (all []string) {
	for i := range v.Proxies {
		if s := &v.Proxies[i]; s.State == "down" {
			all = append(all, s.Title())
		}
	}
	return all
}

// combine makes one list of what is in all answers, as the question wants it.
func (v *Overview) combine(answers []Answer, q Question) {
	v.Locks, v.Of = merge(answers, q)
	for _, a := range answers {
		v.Events = append(v.Events, a.Events...)
	}
	slices.SortStableFunc(v.Events, func(a, b events.Event) int { return b.At.Compare(a.At) })
	v.Events = v.Events[:min(len(v.Events), max(0, q.Events))]
}

// merge makes one list of the locks in all answers, as the question wants it.
func merge(answers []Answer, q Question) (all []Lock, of int) {
	at := map[lockKey]int{}
	for _, a := range answers {
		of += a.Of
		for _, l := range a.Locks {
			here := lockKey{l.DB, l.Name}
			if i, there := at[here]; there {
				all[i].addOther(l)
				of--
				continue
			}
			at[here] = len(all)
			all = append(all, l)
		}
	}
	order := orderOf(q.Sort)
	slices.SortFunc(all, func(a, b Lock) int { return order(&a, &b) })
	return slices.Clone(all[:min(len(all), q.Locks)]), of
}

// addOther adds what another proxy knows of the same lock. A named owner may have asked for it at both: its hold is shown
// once, by the proxy that is sure of it for longest.
func (l *Lock) addOther(other Lock) {
	l.Held, l.Waited = max(l.Held, other.Held), max(l.Waited, other.Waited)
	l.Holding, l.Waiting = l.Holding+other.Holding, l.Waiting+other.Waiting
	l.Waiters = append(l.Waiters, other.Waiters...)
	for _, e := range other.Holders {
		i := slices.IndexFunc(l.Holders, func(mine lock.Entry) bool { return mine.Owner == e.Owner && mine.Kind == e.Kind })
		if i < 0 {
			l.Holders = append(l.Holders, e)
			continue
		}
		l.Holding--
		if l.Holders[i].Left < e.Left {
			l.Holders[i] = e
		}
	}
	slices.SortStableFunc(l.Holders, func(a, b lock.Entry) int { return cmp.Compare(b.Held, a.Held) })
	slices.SortStableFunc(l.Waiters, func(a, b lock.Entry) int { return cmp.Compare(b.Waited, a.Waited) })
}

// states says how the other proxies are that are known, after a question. others is how many hear questions beside this
// one; negative: Redis does not say. As many of those that do not answer are there still: those that were heard of last.
// nameless is how many more there are.
func states(known []State, question string, others int, now time.Time) (all []State, nameless int) {
	silence := func(s State) int {
		if s.answered == question {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(known, func(a, b State) int { return cmp.Or(silence(a)-silence(b), b.heard.Compare(a.heard)) })
	there, gone := 0, 0
	for _, s := range known {
		is, trouble := "gone", "it hears no questions any more"
		switch {
		case s.answered == question:
			is, trouble = "up", ""
		case others < 0, there < others:
			is, trouble = "down", silent
		}
		if is != s.State {
			s.State, s.Since = is, now
		}
		if s.Trouble = trouble; is != "gone" {
			there++
		} else if gone++; gone > mostGone || now.Sub(s.Since) > goneFor {
			continue
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all[:there], func(a, b State) int { return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.ID, b.ID)) })
	return all, max(0, others-there)
}
