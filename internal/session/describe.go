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
	flags := flagsOf(s.waiting.Load() != nil, s.noEvict, s.noTouch, &s.view)
	s.mu.Unlock()
	now := time.Now()
	cmd := "NULL"
	if last := s.last.Load(); last != nil {
		cmd = *last
	}
	line := fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=%d multi=%d "+
		"qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=%s user=%s redir=-1 resp=%d",
		s.id, s.addr, s.laddr, s.id, name, int(now.Sub(s.guard.opened).Seconds()),
		int(now.Sub(time.Unix(0, s.active.Load())).Seconds()), flags, id.DB,
		s.view.channels.Load(), s.view.patterns.Load(), s.view.shards.Load(), s.view.multi.Load()-1, cmd, userName(id.User), id.Proto)
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

// flagsOf is the flags field, in Redis' order; N stands for none.
func flagsOf(waits, noEvict, noTouch bool, v *pinView) string {
	var flags []byte
	for _, f := range []struct {
		on   bool
		flag byte
	}{
		{v.monitor.Load(), 'O'}, {v.subscribed(), 'P'}, {v.multi.Load() > 0, 'x'}, {waits || v.blocked.Load(), 'b'},
		{v.tracking.Load(), 't'}, {noEvict, 'e'}, {noTouch, 'T'},
	} {
		if f.on {
			flags = append(flags, f.flag)
		}
	}
	if flags == nil {
		return "N"
	}
	return string(flags)
}
