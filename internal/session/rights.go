package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// forbidden says in Redis' words that the client's user may not run c, which is answered here. When Redis cannot be
// asked nothing is said: the answer does not need it.
func (s *Session) forbidden(c *commandtable.Command) (line string) {
	if s.isService() {
		return ""
	}
	asked := grant{node: s.srv.o.Node, cluster: s.srv.o.Cluster, ident: s.ident, command: c.Name, rights: s.srv.rights.Load()}
	err, known := grants().Get(asked)
	if !known {
		var reply []byte
		if reply, err = s.ask(c.Probe...); err != nil {
			return ""
		}
		if line, bad := isError(reply); bad && strings.HasPrefix(line, "NOPERM") {
			err = &upstream.ReplyError{Line: line}
		}
		grants().Add(asked, err)
	}
	if err == nil {
		return ""
	}
	return errorLine(err)
}
