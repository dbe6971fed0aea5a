package session

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

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

// To its clients the proxy is a Redis alone, whatever is upstream, or, with Options.Present, the only node of a cluster:
// clients that know clusters then find all slots here.

// mode is what HELLO and INFO call that.
func (s *Server) mode() string {
	if s.o.Present {
		return "cluster"
	}
	return "standalone"
}

var modes = [2][2][]byte{ // alone and as a node
	{[]byte("redis_mode:standalone"), []byte("cluster_enabled:0")},
	{[]byte("redis_mode:cluster"), []byte("cluster_enabled:1")},
}

// misplaced says that an INFO tells of another mode than the proxy's.
func (s *Server) misplaced(text []byte) bool {
	wrong := modes[1]
	if s.o.Present {
		wrong = modes[0]
	}
	return bytes.Contains(text, wrong[0]) || bytes.Contains(text, wrong[1])
}

// placed has INFO say what CLUSTER and HELLO say.
func (s *Server) placed(text []byte) []byte {
	from, to := modes[1], modes[0]
	if s.o.Present {
		from, to = to, from
	}
	for i := range from {
		text = bytes.Replace(text, from[i], to[i], 1)
	}
	return text
}

// noCluster is Redis' answer to what only a cluster's node would take.
func (s *Session) noCluster([][]byte) { s.error("ERR This instance has cluster support disabled") }

// clusterSwitch is READONLY, READWRITE and ASKING: every slot is here and writable, so that nothing changes by them but,
// where replicas may be read from, whether this client's reads go there.
func (s *Session) clusterSwitch(args [][]byte) {
	if s.srv.o.ReadFrom != ReadMaster && !equalFold(args[0], "asking") {
		s.pipes.replicas = equalFold(args[0], "readonly")
		s.ok()
		return
	}
	if !s.srv.o.Present {
		s.noCluster(args)
		return
	}
	s.ok()
}

// cluster answers CLUSTER with a subcommand Redis did not list. It never asks Redis, which may be a cluster's node and
// would give away the others' addresses, or reset itself.
func (s *Session) cluster(args [][]byte) {
	if s.srv.o.Present {
		s.clusterNode(args)
		return
	}
	c := s.srv.facts.table.Load().Lookup([]byte("cluster"))
	if c == nil || c.Subs == nil || len(c.Subs) < 2 { // it did not list any
		s.noCluster(args)
		return
	}
	unknownSubcommand(s, args)
}

// clusterNode is CLUSTER of the only node of a cluster.
func (s *Session) clusterNode(args [][]byte) {
	if !s.srv.o.Present {
		s.noCluster(args)
		return
	}
	host, port, err := s.announced()
	if err != nil {
		s.fail(err)
		return
	}
	out, ok := commands.ClusterNode{Host: host, Port: port}.Answer(s.batch.out, s.ident.Proto, args[1:])
	if !ok {
		s.askSlot(args)
		return
	}
	s.batch.out = out
}

// askSlot asks the node that has a slot.
func (s *Session) askSlot(args [][]byte) {
	slot, ok := commands.Integer(args[2])
	if !ok || slot < 0 || slot >= cluster.Slots {
		s.error("ERR Invalid slot")
		return
	}
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	s.relay(s.pipes.way.askSlot(int(slot), words...))
}

// announced is where clients are told to find this proxy: by default where this one has.
func (s *Session) announced() (host string, port int, err error) {
	addr := s.srv.o.Announce
	if addr == "" {
		addr = s.peer.laddr
	}
	host, digits, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil {
		return "", 0, fmt.Errorf("this proxy's address is not known here: set --announce-address")
	}
	return host, port, nil
}
