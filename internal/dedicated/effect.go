package dedicated

import "github.com/lockproxy/lockproxy/internal/client"

// Effect is what a command does to its connection once Redis has answered it, or EXEC's reply shows that it has been
// run, without an error. nil: nothing that matters here.
type Effect interface {
	apply(s *State)
	bytes() int // that its words take
}

type (
	// Select makes it the present database.
	Select int
	// Protocol is HELLO's.
	Protocol int
)

func (n Select) apply(s *State)   { s.db = int(n) }
func (n Protocol) apply(s *State) { s.proto = int(n) }

func (Select) bytes() int   { return 0 }
func (Protocol) bytes() int { return 0 }

// Setting is what the client says of itself. Its session is told.
type Setting client.Setting

func (t Setting) apply(s *State) { s.settings = append(s.settings, client.Setting(t)) }
func (t Setting) bytes() int     { return len(t.Value) }

// Tracking is a call of CLIENT TRACKING.
type Tracking struct {
	On, BCast bool
	To        Redirect
}

// Redirect is whom CLIENT TRACKING … REDIRECT has named: our number of that client, and that of its connection at
// Redis.
type Redirect struct{ Client, Redis int64 }

func (t Tracking) apply(s *State) {
	if s.tracking = (Tracking{}); t.On {
		s.tracking = t
	}
}
func (Tracking) bytes() int { return 0 }
