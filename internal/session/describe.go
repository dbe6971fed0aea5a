package session

import (
	"fmt"
	"net"
	"time"
)

// describe is the session's line of CLIENT LIST, in Redis 7.0's fields and order; memory and buffers, which mean
// nothing here, are 0. The library is shown, as in Redis 7.2, once it is named. Any goroutine may call it.
func (s *Session) describe() string {
	s.mu.Lock()
	name, id, lib := s.name, s.ident, s.lib
	flags := flagsOf(s.waiting.Load(), s.noEvict, s.noTouch)
	s.mu.Unlock()
	now := time.Now()
	cmd := "NULL"
	if last := s.last.Load(); last != nil {
		cmd = *last
	}
	line := fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d sub=0 psub=0 ssub=0 multi=-1 "+
		"qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=%s user=%s redir=-1 resp=%d",
		s.id, s.addr, s.laddr, s.id, name, int(now.Sub(s.guard.opened).Seconds()),
		int(now.Sub(time.Unix(0, s.active.Load())).Seconds()), flags, id.DB, cmd, userName(id.User), id.Proto)
	if lib[0] != "" || lib[1] != "" {
		line += " lib-name=" + lib[0] + " lib-ver=" + lib[1]
	}
	return line
}

// peer names both ends of a connection as Redis does: a unix socket's are its path with port 0.
func peer(remote, local net.Addr) (addr, laddr string) {
	if local.Network() == "unix" {
		path := local.String() + ":0"
		return path, path
	}
	return remote.String(), local.String()
}

// flagsOf is the flags field: blocked, no-evict, no-touch, or N for none.
func flagsOf(blocked, noEvict, noTouch bool) (flags string) {
	if blocked {
		flags += "b"
	}
	if noEvict {
		flags += "e"
	}
	if noTouch {
		flags += "T"
	}
	if flags == "" {
		return "N"
	}
	return flags
}
