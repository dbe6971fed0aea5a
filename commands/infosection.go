package commands

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// ProxyFacts is what INFO, HELLO and CLUSTER tell of this proxy.
type ProxyFacts struct {
	Version        string
	Announce       string // where clients are told to find this proxy, "host:port"; "": where each has found it
	Embedded       bool   // the upstream is the embedded store
	Node           bool   // to its clients it is a cluster's only node, else a Redis alone
	Uptime         time.Duration
	MaxConnections int // to Redis, on behalf of clients
	Figures        telemetry.Readings
	Upstream       func(line func(name string, value any)) // writes the lines about Redis
	Locks          *lock.Manager                           // nil: there is none
	Events         *events.Log
}

// appendInfo appends the reply to INFO: Redis' answer, in which the mode is the proxy's, and behind it the proxy's own
// section if that was asked for.
func (p *ProxyFacts) appendInfo(out []byte, proto int, args [][]byte, answer []byte) []byte {
	own := wantsOwnSection(args[1:])
	if !own && !p.otherMode(answer) {
		return append(out, answer...)
	}
	r, ok := resp.ParseReply(answer)
	_, bad := resp.ErrorLine(answer)
	if !ok || bad || r.Kind != '$' && r.Kind != '=' {
		return append(out, answer...)
	}
	text := string(p.inOwnMode(r.Text))
	if own {
		if text = strings.TrimRight(text, "\r\n"); text != "" {
			text += "\r\n\r\n"
		}
		text += p.section()
	}
	return resp.AppendVerbatim(out, proto, "txt", text)
}

// mode is what HELLO calls it.
func (p *ProxyFacts) mode() string {
	if p.Node {
		return "cluster"
	}
	return "standalone"
}

// wantsOwnSection says whether a client that asks for these sections gets this proxy's too.
func wantsOwnSection(sections [][]byte) bool {
	for _, section := range sections {
		switch strings.ToLower(string(section)) {
		case "lockproxy", "default", "all", "everything":
			return true
		}
	}
	return len(sections) == 0
}

// section is "# Lockproxy" of INFO.
func (p *ProxyFacts) section() string {
	var b strings.Builder
	b.WriteString("# Lockproxy\r\n")
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	line("lockproxy_version", versionNumber(p.Version))
	p.tellLines(false, line)
	if p.Locks == nil {
		return b.String()
	}
	for i, n := range p.Locks.Nodes() {
		line(fmt.Sprintf("lockproxy_quorum_node%d", i), fmt.Sprintf("name=%s,state=%s,seconds=%d,counts_in=%d,error=%s",
			n.Name, n.State, int(n.Since.Seconds()), int(n.Counts.Round(time.Second).Seconds()),
			oneField.Replace(n.Trouble)))
	}
	return b.String()
}

// versionNumber is the number in a version such as "v1.2.3-rc.1", "0.0.0" if there is none, as in "(devel)". Programs
// that read INFO expect a number in each field whose name ends with _version.
func versionNumber(version string) string {
	number := strings.TrimPrefix(version, "v")
	if end := strings.IndexFunc(number, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		number = number[:end]
	}
	return cmp.Or(strings.TrimRight(number, "."), "0.0.0")
}

// tellLines tells what is known of the proxy, but for its version and a quorum's nodes: words, and then figures, of which
// ages only if they are wanted.
func (p *ProxyFacts) tellLines(ages bool, line func(name string, value any)) {
	embedded := 0
	if p.Embedded {
		embedded = 1
	}
	line("lockproxy_embedded", embedded)
	line("lockproxy_uptime_in_seconds", int(p.Uptime.Seconds()))
	if p.Locks != nil {
		line("lockproxy_id", p.Locks.UUID())
		line("lockproxy_locks_status", p.locksStatus())
		if _, at := p.Locks.Apart(); at != "" {
			line("lockproxy_locks_at", at)
		}
	}
	p.Upstream(line)
	line("lockproxy_upstream_connections_max", p.MaxConnections)
	p.Figures.Fields(ages, func(field string, n int64) { line("lockproxy_"+field, n) })
}

// locksStatus is ok, or why locks cannot be had.
func (p *ProxyFacts) locksStatus() string {
	if _, err := p.Locks.Able(); err != nil {
		return oneField.Replace(err.Error())
	}
	return "ok"
}

// oneField keeps an error from looking like several fields or lines.
var oneField = strings.NewReplacer(",", ";", "\r", " ", "\n", " ")

var modes = [2][2][]byte{ // alone and as a node
	{[]byte("redis_mode:standalone"), []byte("cluster_enabled:0")},
	{[]byte("redis_mode:cluster"), []byte("cluster_enabled:1")},
}

// modeLines are the lines of INFO of the mode that is not the proxy's, and of the one that is.
func (p *ProxyFacts) modeLines() (other, own [2][]byte) {
	if p.Node {
		return modes[0], modes[1]
	}
	return modes[1], modes[0]
}

// otherMode says that an INFO tells of another mode than the proxy's.
func (p *ProxyFacts) otherMode(text []byte) bool {
	other, _ := p.modeLines()
	return bytes.Contains(text, other[0]) || bytes.Contains(text, other[1])
}

// inOwnMode has an INFO say the same of the mode as CLUSTER and HELLO.
func (p *ProxyFacts) inOwnMode(text []byte) []byte {
	other, own := p.modeLines()
	for i := range other {
		text = bytes.Replace(text, other[i], own[i], 1)
	}
	return text
}
