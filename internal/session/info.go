package session

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// info is Redis' INFO with a section of this proxy's own behind it.
func (s *Session) info(args [][]byte) {
	answer, err := s.askRaw(encode(args))
	ours := wantsOurs(args[1:])
	if err != nil || !ours && !bytes.Contains(answer, clusterMode) && !bytes.Contains(answer, clusterOn) {
		s.relay(answer, err)
		return
	}
	r, ok := parseReply(answer)
	line, bad := isError(answer)
	switch {
	case bad && s.srv.o.Embedded && !strings.HasPrefix(line, "NO"):
		r.text = nil // the embedded store answers sections it does not have with an error
	case !ok || bad || r.kind != '$' && r.kind != '=':
		s.relay(answer, nil)
		return
	}
	text := string(noNode(r.text))
	if ours {
		if text = strings.TrimRight(text, "\r\n"); text != "" {
			text += "\r\n\r\n"
		}
		text += s.srv.section()
	}
	s.batch.out = resp.AppendVerbatim(s.batch.out, s.ident.Proto, "txt", text)
}

var clusterMode, clusterOn = []byte("redis_mode:cluster"), []byte("cluster_enabled:1")

// noNode has INFO say what CLUSTER and HELLO say: here is no cluster's node.
func noNode(text []byte) []byte {
	text = bytes.Replace(text, clusterMode, []byte("redis_mode:standalone"), 1)
	return bytes.Replace(text, clusterOn, []byte("cluster_enabled:0"), 1)
}

// wantsOurs says whether a client that asks for these sections gets this proxy's too.
func wantsOurs(sections [][]byte) bool {
	for _, section := range sections {
		switch strings.ToLower(string(section)) {
		case "lockproxy", "default", "all", "everything":
			return true
		}
	}
	return len(sections) == 0
}

// section is "# Lockproxy" of INFO.
func (s *Server) section() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	b.WriteString("# Lockproxy\r\n")
	embedded := 0
	if s.o.Embedded {
		embedded = 1
	}
	line("lockproxy_version", s.o.Version)
	line("lockproxy_embedded", embedded)
	line("lockproxy_uptime_in_seconds", int(time.Since(s.start).Seconds()))
	line("lockproxy_clients", s.sessionN.Load())
	line("lockproxy_clients_accepted", telemetry.ClientsAccepted.Value())
	line("lockproxy_clients_rejected", telemetry.ClientsRejected.Value())
	line("lockproxy_entries_failed", telemetry.EntriesFailed.Value())
	line("lockproxy_pipes", telemetry.Pipes.Value())
	line("lockproxy_pipe_failures", telemetry.PipeFailures.Value())
	line("lockproxy_forwarded", telemetry.Commands.Value())
	line("lockproxy_scripts_reloaded", telemetry.ScriptsReloaded.Value())
	locks := s.o.Locks.Stats()
	line("lockproxy_locks_held", locks.Held)
	line("lockproxy_locks_waiting", locks.Waiting)
	line("lockproxy_locks_granted", locks.Granted)
	line("lockproxy_locks_lost", locks.Lost)
	line("lockproxy_locks_renewed", locks.Renewed)
	return b.String()
}

// encode writes a command anew.
func encode(args [][]byte) []byte {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	return resp.AppendCommand(nil, words...)
}
