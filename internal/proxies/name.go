package proxies

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

const (
	prefix   = "lockproxy:"
	mostName = 1024 // bytes
)

// Name is the name of the connections of a proxy to Redis: lockproxy:<id>:addr=…&host=…, as the query of a URL, in which
// there is no byte that a name may not have.
func Name(p Proxy) string {
	said := url.Values{"host": {p.Host}, "version": {p.Version}, "since": {strconv.FormatInt(p.Started.Unix(), 10)}}
	if p.Addr != "" {
		said.Set("addr", p.Addr)
	}
	if p.Page != "" {
		said.Set("page", p.Page)
	}
	if p.Secure {
		said.Set("tls", "yes")
	}
	return prefix + p.ID + ":" + said.Encode()
}

// listed adds the proxies in a reply to CLIENT LIST, by their ids. Only connections of the service account are believed:
// any client may give itself such a name.
func listed(list, service string, all map[string]Record) {
	for text := range strings.Lines(list) {
		c := connection{user: service} // Redis 5 has no users
		c.read(text)
		if c.user != service {
			continue
		}
		if id, said, is := split(c.name); is {
			all[id] = record(said, c.addr)
		}
	}
}

// connection is a line of CLIENT LIST.
type connection struct{ addr, name, user string }

func (c *connection) read(text string) {
	for _, field := range strings.Fields(text) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "addr":
			c.addr = value
		case "name":
			c.name = value
		case "user":
			c.user = value
		}
	}
}

// split takes the name of a connection apart. is: it is a proxy's.
func split(name string) (id string, said url.Values, is bool) {
	rest, ours := strings.CutPrefix(name, prefix)
	if !ours || len(rest) > mostName {
		return "", nil, false
	}
	id, query, _ := strings.Cut(rest, ":")
	said, err := url.ParseQuery(query)
	return id, said, err == nil && lockstore.IsUUID(id)
}

// record is what a name says. Where that does not name the machine, it is completed with the address that Redis sees.
func record(said url.Values, seen string) Record {
	since, _ := strconv.ParseInt(said.Get("since"), 10, 64)
	return Record{Host: said.Get("host"), Addr: reached(said.Get("addr"), seen, false), Page: reached(said.Get("page"), seen, true),
		Secure: said.Get("tls") == "yes", Version: said.Get("version"), Started: time.Unix(since, 0)}
}
