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
// any client may give itself such a name. seen is where Redis sees the connection.
func listed(list, service string, all map[string]Record) {
	for line := range strings.Lines(list) {
		var seen, name string
		user := service // Redis 5 has no users
		for _, field := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(field, "="); key {
			case "addr":
				seen = value
			case "name":
				name = value
			case "user":
				user = value
			}
		}
		said, is := strings.CutPrefix(name, prefix)
		id, said, _ := strings.Cut(said, ":")
		if _, known := all[id]; !is || known || user != service || len(said) > mostName || !lockstore.IsUUID(id) {
			continue
		}
		if values, err := url.ParseQuery(said); err == nil {
			all[id] = record(values, seen)
		}
	}
}

// record is what a name says. Where that does not name the machine, it is completed with the address that Redis sees.
func record(said url.Values, seen string) Record {
	since, _ := strconv.ParseInt(said.Get("since"), 10, 64)
	return Record{Host: said.Get("host"), Addr: reached(said.Get("addr"), seen, false), Page: reached(said.Get("page"), seen, true),
		Secure: said.Get("tls") == "yes", Version: said.Get("version"), Started: time.Unix(since, 0)}
}
