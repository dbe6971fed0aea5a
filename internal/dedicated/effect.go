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
	// Caching is what CLIENT CACHING says of the next command.
	Caching string
)

func (n Select) apply(s *State)   { s.db = int(n) }
func (n Protocol) apply(s *State) { s.proto = int(n) }
func (w Caching) apply(s *State)  { s.tracking.caching = string(w) }

func (Select) bytes() int    { return 0 }
func (Protocol) bytes() int  { return 0 }
func (w Caching) bytes() int { return len(w) }

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

func (t Tracking) apply(s *State) { s.tracking.take(t) }
func (Tracking) bytes() int       { return 0 }

// tracking is the state of CLIENT TRACKING.
type tracking struct {
	now     Tracking // the last call; without tracking it says that all is off
	caching string   // what CLIENT CACHING has just said of the next command
}

// take takes a call that Redis has agreed to.
func (t *tracking) take(call Tracking) {
	if t.now = (Tracking{}); call.On {
		t.now = call
	}
}
