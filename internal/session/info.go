package session

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// infoFacts have all masters answer INFO. One that cannot does not hide what the others say.
var infoFacts = &cluster.Facts{Name: "info", ReadOnly: true, Request: cluster.AllShards, Response: cluster.Each, Partial: true}

// askInfo is INFO as the masters answer it together.
func (u *clustered) askInfo(args [][]byte) ([]byte, error) {
	answer, err := u.askPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: infoFacts})
	if err != nil {
		return nil, err
	}
	all, _ := resp.ParseReply(answer)
	var texts []string
	for _, r := range all.Elems {
		if r.Kind == '$' || r.Kind == '=' {
			texts = append(texts, string(r.Text))
		}
	}
	if len(texts) == 0 { // they refuse it
		return all.Elems[0].Raw, nil
	}
	return resp.AppendVerbatim(nil, u.s.ident.Proto, "txt", commands.SumInfo(texts)), nil
}

// statsFacts have all masters answer FUNCTION STATS.
var statsFacts = &cluster.Facts{Name: "function|stats", ReadOnly: true, Request: cluster.AllShards, Response: cluster.Each, Partial: true}

// functionStats is FUNCTION STATS: a master's that runs a script, or any one's, since all have the same libraries.
func (u *clustered) functionStats(args [][]byte) {
	answer, err := u.askPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: statsFacts})
	if err != nil {
		u.s.relay(nil, err)
		return
	}
	all, _ := resp.ParseReply(answer)
	said := all.Elems[0].Raw
	for _, r := range all.Elems {
		if len(r.Elems) > 1 && string(r.Elems[0].Text) == "running_script" && !r.Elems[1].Null {
			said = r.Raw
		}
	}
	u.s.relay(said, nil)
}

// info is Redis' INFO with a section of this proxy's own behind it.
func (s *Session) info(args [][]byte) {
	answer, err := s.pipes.way.askInfo(args)
	ours := wantsOurs(args[1:])
	if err != nil || !ours && !s.srv.misplaced(answer) {
		s.relay(answer, err)
		return
	}
	r, ok := resp.ParseReply(answer)
	line, bad := resp.ErrorLine(answer)
	switch {
	case bad && s.srv.o.Embedded && !strings.HasPrefix(line, "NO"):
		r.Text = nil // the embedded store answers sections it does not have with an error
	case !ok || bad || r.Kind != '$' && r.Kind != '=':
		s.relay(answer, nil)
		return
	}
	text := string(s.srv.placed(r.Text))
	if ours {
		if text = strings.TrimRight(text, "\r\n"); text != "" {
			text += "\r\n\r\n"
		}
		text += s.srv.section()
	}
	s.batch.out = resp.AppendVerbatim(s.batch.out, s.ident.Proto, "txt", text)
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
	line("lockproxy_clients", s.clients.n.Load())
	line("lockproxy_clients_accepted", telemetry.ClientsAccepted.Value())
	line("lockproxy_clients_rejected", telemetry.ClientsRejected.Value())
	line("lockproxy_entries_failed", telemetry.EntriesFailed.Value())
	s.up.backend.Describe(line)
	connections, most := s.o.Budget.Used()
	line("lockproxy_upstream_connections", connections)
	line("lockproxy_upstream_connections_max", most)
	line("lockproxy_upstream_connections_own", telemetry.UpstreamOwn.Value())
	line("lockproxy_upstream_connections_refused", telemetry.UpstreamRefused.Value())
	line("lockproxy_pipes", telemetry.Pipes.Value())
	line("lockproxy_pipe_failures", telemetry.PipeFailures.Value())
	line("lockproxy_forwarded", telemetry.Commands.Value())
	line("lockproxy_scripts_reloaded", telemetry.ScriptsReloaded.Value())
	if s.o.Locks == nil {
		return b.String()
	}
	locks := s.o.Locks.Stats()
	line("lockproxy_locks_held", locks.Held)
	line("lockproxy_locks_waiting", locks.Waiting)
	line("lockproxy_locks_granted", locks.Granted)
	line("lockproxy_locks_lost", locks.Lost)
	line("lockproxy_locks_renewed", locks.Renewed)
	for i, n := range s.o.Locks.Nodes() {
		line(fmt.Sprintf("lockproxy_quorum_node%d", i), fmt.Sprintf("name=%s,state=%s,seconds=%d,counts_in=%d,error=%s",
			n.Name, n.State, int(n.Since.Seconds()), int(n.Counts.Round(time.Second).Seconds()), oneField.Replace(n.Trouble)))
	}
	return b.String()
}

// oneField keeps an error from looking like several fields or lines.
var oneField = strings.NewReplacer(",", ";", "\r", " ", "\n", " ")
