package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// redis70 are the fields of CLIENT INFO before Redis has told its own.
var redis70 = strings.Fields("id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp")

// fieldsOf are the names of the fields in a line of CLIENT INFO, in their order; nil: it is none.
func fieldsOf(line string) (names []string) {
	for _, field := range strings.Fields(line) {
		name, _, ok := strings.Cut(field, "=")
		if !ok {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// learnFields takes the fields of CLIENT INFO from Redis' answer to a CLIENT INFO or CLIENT LIST. A client asks, on its own
// identity: the service account needs neither command.
func (s *Server) learnFields(answer []byte) {
	r, ok := resp.ParseReply(answer)
	if !ok || r.Kind != '$' && r.Kind != '=' {
		return
	}
	line, _, _ := strings.Cut(string(r.Text), "\n")
	if names := fieldsOf(line); slices.Contains(names, "id") {
		s.facts.fields.Store(&names)
	}
}

// describe is the session's line of CLIENT LIST, in the fields of this Redis and their order; what means nothing here, as
// memory and buffers, is 0, but for the bytes of the command that asks. The library is shown once it is named, too. Any
// goroutine may call it.
func (s *Session) describe(asking [][]byte) string {
	names := redis70
	if told := s.srv.facts.fields.Load(); told != nil {
		names = *told
	}
	values := s.values(asking)
	var line strings.Builder
	for i, name := range names {
		if i > 0 {
			line.WriteByte(' ')
		}
		value, known := values[name]
		if !known {
			value = 0
		}
		fmt.Fprintf(&line, "%s=%v", name, value)
	}
	if lib, version := values["lib-name"], values["lib-ver"]; (lib != "" || version != "") && !slices.Contains(names, "lib-name") {
		fmt.Fprintf(&line, " lib-name=%s lib-ver=%s", lib, version)
	}
	return line.String()
}

// values are the fields that mean something here.
func (s *Session) values(asking [][]byte) map[string]any {
	s.mu.Lock()
	name, id, lib := s.settings.name, s.ident, s.settings.lib
	flags := s.flags()
	s.mu.Unlock()
	now := time.Now()
	cmd := "NULL"
	if last := s.activity.last.Load(); last != nil {
		cmd = *last
	}
	qbuf := 0
	if asking != nil {
		qbuf = len(resp.Command(asking))
	}
	return map[string]any{
		"id": s.peer.id, "addr": s.peer.addr, "laddr": s.peer.laddr, "fd": s.peer.id, "name": name, "flags": flags, "db": id.DB, "events": "r",
		"age": int(now.Sub(s.guard.Opened()).Seconds()), "idle": int(now.Sub(time.Unix(0, s.activity.active.Load())).Seconds()),
		"sub": s.own.view.Channels.Load(), "psub": s.own.view.Patterns.Load(), "ssub": s.own.view.Shards.Load(),
		"multi": s.own.view.Multi.Load() - 1, "watch": s.own.view.Watched.Load(), "qbuf": qbuf, "cmd": cmd, "user": userName(id.User),
		"redir": s.own.view.Redirected(), "resp": id.Proto, "lib-name": lib[0], "lib-ver": lib[1],
	}
}

// flags is the flags field, in Redis' order; N stands for none. mu is held.
func (s *Session) flags() string {
	v := &s.own.view
	tracks := v.Tracking.On.Load()
	var flags []byte
	for _, f := range []struct {
		on   bool
		flag byte
	}{
		{v.Monitor.Load(), 'O'}, {v.Subscribed(), 'P'}, {v.Multi.Load() > 0, 'x'}, {s.activity.waiting.Load() != nil || v.Blocked.Load(), 'b'},
		{tracks, 't'}, {tracks && v.Tracking.BCast.Load(), 'B'}, {s.peer.unix, 'U'}, {s.settings.noEvict, 'e'}, {s.settings.noTouch, 'T'},
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
