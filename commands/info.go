package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// info is Redis' INFO with a section of this proxy's own behind it.
func info(c *Client, args [][]byte, out []byte) []byte {
	answer, err := askInfo(c, args)
	if err != nil {
		return c.Failed(out, err)
	}
	return c.Proxy.About().appendInfo(out, c.proto(), args, answer)
}

// askInfo is INFO of all nodes that have keys, as one.
func askInfo(c *Client, args [][]byte) ([]byte, error) {
	if c.Peer.Operator {
		return resp.AppendBulk(nil, nil), nil // Redis is not asked at the admin socket
	}
	all, err := c.Forwarder.AskAll(args)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, r := range all {
		if r.Kind == '$' || r.Kind == '=' {
			texts = append(texts, string(r.Text))
		}
	}
	if len(all) == 1 || len(texts) == 0 { // they refuse it
		return all[0].Raw, nil
	}
	return resp.AppendVerbatim(nil, c.proto(), "txt", sumInfo(texts)), nil
}

// added are the fields of INFO that are added up over all masters: counts of clients, commands, keys and messages.
// Other fields are those of the first master.
var added = fieldSet(`
	connected_clients blocked_clients tracking_clients clients_in_timeout_table
	used_memory used_memory_rss maxmemory lazyfree_pending_objects lazyfreed_objects
	rdb_changes_since_last_save
	total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes
	rejected_connections expired_keys expired_time_cap_reached_count evicted_keys evicted_clients keyspace_hits keyspace_misses
	pubsub_channels pubsub_patterns pubsubshard_channels total_forks tracking_total_keys tracking_total_items tracking_total_prefixes
	unexpected_error_replies total_error_replies dump_payload_sanitizations total_reads_processed total_writes_processed`)

// foremost are the fields of which the highest is shown: they say whether something goes on at any master.
var foremost = fieldSet("loading async_loading rdb_bgsave_in_progress aof_rewrite_in_progress aof_rewrite_scheduled")

func fieldSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// infoSection is a section of INFO: the fields by name, and their order.
type infoSection struct {
	title  string
	names  []string
	values map[string]string
}

// readInfo cuts an INFO into its sections.
func readInfo(text string) (sections []*infoSection) {
	var now *infoSection
	for line := range strings.SplitSeq(text, "\r\n") {
		if title, is := strings.CutPrefix(line, "# "); is {
			now = &infoSection{title: title, values: map[string]string{}}
			sections = append(sections, now)
			continue
		}
		if name, value, is := strings.Cut(line, ":"); is && now != nil {
			now.names = append(now.names, name)
			now.values[name] = value
		}
	}
	return sections
}

// sumInfo makes one INFO of those of the masters, at least one.
func sumInfo(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	all := readInfo(texts[0])
	for _, text := range texts[1:] {
		for _, more := range readInfo(text) {
			at := slices.IndexFunc(all, func(s *infoSection) bool { return s.title == more.title })
			if at < 0 {
				all = append(all, more)
				continue
			}
			all[at].add(more)
		}
	}
	var b strings.Builder
	for i, s := range all {
		if i > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", s.title)
		for _, name := range s.names {
			fmt.Fprintf(&b, "%s:%s\r\n", name, s.value(name))
		}
	}
	return b.String()
}

// add adds the section of another master.
func (s *infoSection) add(more *infoSection) {
	for _, name := range more.names {
		mine, has := s.values[name]
		switch theirs := more.values[name]; {
		case !has:
			s.names = append(s.names, name)
			s.values[name] = theirs
		case added[name]:
			s.values[name] = sumOf(mine, theirs)
		case foremost[name]:
			s.values[name] = max(mine, theirs) // both have one digit
		case s.title == "Keyspace" || s.title == "Commandstats" || s.title == "Errorstats":
			s.values[name] = addPairs(mine, theirs)
		}
	}
}

// value is the value of a field. That of used_memory_human and its like is made from the sum.
func (s *infoSection) value(name string) string {
	number, is := strings.CutSuffix(name, "_human")
	if !is || !added[number] {
		return s.values[name]
	}
	n, err := strconv.ParseFloat(s.values[number], 64)
	if err != nil {
		return s.values[name]
	}
	units := "BKMGTP"
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	if units[0] == 'B' {
		return s.values[number] + "B"
	}
	return fmt.Sprintf("%.2f%c", n, units[0])
}

func sumOf(a, b string) string {
	n, err := strconv.ParseInt(a, 10, 64)
	m, wrong := strconv.ParseInt(b, 10, 64)
	if err != nil || wrong != nil {
		return a
	}
	return strconv.FormatInt(n+m, 10)
}

// addPairs adds values like "calls=1,usec=2". A mean is weighted by the number that it is the mean of.
func addPairs(a, b string) string {
	mine, theirs := pairs(a), pairs(b)
	var out []string
	for pair := range strings.SplitSeq(a, ",") {
		name, _, _ := strings.Cut(pair, "=")
		var value string
		switch name {
		case "usec_per_call":
			value = strconv.FormatFloat((mine["usec"]+theirs["usec"])/max(mine["calls"]+theirs["calls"], 1), 'f', 2, 64)
		case "avg_ttl":
			ms := mine["avg_ttl"]*mine["expires"] + theirs["avg_ttl"]*theirs["expires"]
			value = strconv.FormatFloat(ms/max(mine["expires"]+theirs["expires"], 1), 'f', 0, 64)
		default:
			value = strconv.FormatFloat(mine[name]+theirs[name], 'f', -1, 64)
		}
		out = append(out, name+"="+value)
	}
	return strings.Join(out, ",")
}

func pairs(text string) map[string]float64 {
	all := map[string]float64{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		all[name], _ = strconv.ParseFloat(value, 64)
	}
	return all
}
