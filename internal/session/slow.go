package session

import (
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/slowlog"
)

// noteSlow puts a command into the slow log. One that Redis does not know is left out: it was not run.
func (s *Server) noteSlow(c *client.Slow) {
	now := time.Now()
	if c.Command == commandtable.Unlisted || !s.slowest.Takes(now) {
		return
	}
	s.slowest.Add(slowlog.Entry{
		At: now, Took: c.Took, Upstream: c.Upstream, Args: commands.Shown(c.Command, c.Words),
		Commands: c.Commands,
		Client:   slowlog.Client{Addr: c.Client.Peer.Addr, Name: c.Client.Name(), User: c.Client.User()},
	})
}
