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

// added are the sections of INFO whose whole numbers are added up over all masters, since keys, and what waits for them, are
// spread over these, and a field of another section. All else is of the first master.
var added = map[string]bool{"Clients": true, "Memory": true, "Stats": true, "Keyspace": true, "Commandstats": true, "Errorstats": true,
	"rdb_changes_since_last_save": true}

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
			all[at].addUp(more)
		}
	}
	var b strings.Builder
	for i, s := range all {
		if i > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", s.title)
		for _, name := range s.names {
			fmt.Fprintf(&b, "%s:%s\r\n", name, s.values[name])
		}
	}
	return b.String()
}

// addUp adds the section of another master.
func (s *infoSection) addUp(more *infoSection) {
	for _, name := range more.names {
		mine, has := s.values[name]
		switch theirs := more.values[name]; {
		case !has:
			s.names = append(s.names, name)
			s.values[name] = theirs
		case added[s.title], added[name]:
			s.values[name] = sumOf(mine, theirs)
		case s.title == "Persistence" && len(mine) == 1 && len(theirs) == 1:
			s.values[name] = max(mine, theirs) // something goes on at any of them: 1
		}
	}
}

// sumOf adds the numbers of values such as "3" and "calls=1,usec=2". Means are left as they are.
func sumOf(mine, theirs string) string {
	all, others := strings.Split(mine, ","), strings.Split(theirs, ",")
	for i := range min(len(all), len(others)) {
		at := strings.IndexByte(all[i], '=') + 1
		name := all[i][:at]
		n, err := strconv.ParseInt(all[i][at:], 10, 64)
		m, wrong := strconv.ParseInt(strings.TrimPrefix(others[i], name), 10, 64)
		if err == nil && wrong == nil && name != "avg_ttl=" {
			all[i] = name + strconv.FormatInt(n+m, 10)
		}
	}
	return strings.Join(all, ",")
}
