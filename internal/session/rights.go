package session

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// forbidden says in Redis' words that the client's user may not run c, which is answered here. When Redis cannot be
// asked nothing is said: the answer does not need it.
func (s *Session) forbidden(c *commandtable.Command) (line string) {
	refusal, err := s.refusal(grant{command: c.Name}, func() ([]byte, error) { return s.ask(c.Probe...) })
	if err != nil || refusal == nil {
		return ""
	}
	return errorLine(refusal)
}

// refusal is Redis' NOPERM to a call of a command, as this client; nil if it has none. It is believed for a while. The error says
// that Redis cannot be asked. The service account itself is not asked for.
func (s *Session) refusal(asked grant, call func() ([]byte, error)) (refusal, err error) {
	if s.isService() {
		return nil, nil
	}
	asked.node, asked.cluster, asked.ident, asked.rights = s.srv.o.Node, s.srv.o.Cluster, s.ident, s.srv.access.rights.Load()
	if refusal, known := grants().Get(asked); known {
		return refusal, nil
	}
	reply, err := call()
	if err != nil {
		return nil, err
	}
	if line, bad := isError(reply); bad && strings.HasPrefix(line, "NOPERM") {
		refusal = &upstream.ReplyError{Line: line}
	}
	if len(asked.key) <= longestKey {
		grants().Add(asked, refusal)
	}
	return refusal, nil
}

// SeesClients says whether the client's user may run CLIENT LIST. When Redis cannot be asked it may not.
func (s *Session) SeesClients() bool {
	refusal, err := s.refusal(grant{command: "client|list"}, func() ([]byte, error) { return s.ask("CLIENT", "LIST", "ID", "0") })
	return refusal == nil && err == nil
}

// MayDelete is Redis' word on whether the client's user may run DEL. It is asked with a key that is not there, whose name begins as
// the lock's does: that its own name is out of bounds says nothing of the lock's, for which May has been asked.
func (s *Session) MayDelete(key []byte) error {
	refusal, err := s.refusal(grant{command: "del", key: string(key)}, func() ([]byte, error) {
		return s.askAbout("DEL", string(key)+":lockproxy:"+strconv.FormatUint(rand.Uint64(), 36))
	})
	if err != nil {
		return err
	}
	if refusal != nil && strings.Contains(refusal.Error(), " to run ") {
		return refusal
	}
	return nil
}
