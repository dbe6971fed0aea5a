package session

import (
	"fmt"
	"time"
)

// describe is the session's line of CLIENT LIST, in Redis 7.0's fields and order; memory and buffers, which mean
// nothing here, are 0, but for the bytes of the command that asks. The library is shown, as in Redis 7.2, once it is
// named. Any goroutine may call it.
func (s *Session) describe(asking [][]byte) string {
	s.mu.Lock()
	name, id, lib := s.name, s.ident, s.lib
	flags := s.flags()
	s.mu.Unlock()
	now := time.Now()
	cmd := "NULL"
	if last := s.last.Load(); last != nil {
		cmd = *last
	}
	qbuf := 0
	if asking != nil {
		qbuf = len(encode(asking))
	}
	line := fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=%d multi=%d "+
		"qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=%s user=%s redir=%d resp=%d",
		s.id, s.addr, s.laddr, s.id, name, int(now.Sub(s.guard.Opened()).Seconds()),
		int(now.Sub(time.Unix(0, s.active.Load())).Seconds()), flags, id.DB,
		s.view.channels.Load(), s.view.patterns.Load(), s.view.shards.Load(), s.view.multi.Load()-1, qbuf, cmd, userName(id.User), s.view.redirected(), id.Proto)
	if lib[0] != "" || lib[1] != "" {
		line += " lib-name=" + lib[0] + " lib-ver=" + lib[1]
	}
	return line
}

// flags is the flags field, in Redis' order; N stands for none. mu is held.
func (s *Session) flags() string {
	v := &s.view
	tracks := v.tracking.Load()
	var flags []byte
	for _, f := range []struct {
		on   bool
		flag byte
	}{
		{v.monitor.Load(), 'O'}, {v.subscribed(), 'P'}, {v.multi.Load() > 0, 'x'}, {s.waiting.Load() != nil || v.blocked.Load(), 'b'},
		{tracks, 't'}, {tracks && v.bcast.Load(), 'B'}, {s.unix, 'U'}, {s.noEvict, 'e'}, {s.noTouch, 'T'},
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

// redirected is the redir field: -1 without tracking, 0 when the client gets its invalidations itself.
func (v *pinView) redirected() int64 {
	if !v.tracking.Load() {
		return -1
	}
	return v.redirect.Load()
}
