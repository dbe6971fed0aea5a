package embedded

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// version is the Redis that miniredis says it is in HELLO; a test holds it to that.
const version = "8.4.0"

// info answers INFO [section …]. Its text is echoed, so that it is queued in a transaction.
func (s *Store) info(p *server.Peer, wanted []string) {
	var text strings.Builder
	for _, section := range s.sections() {
		if !wants(wanted, section.name) {
			continue
		}
		if text.Len() > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString("# " + section.name + "\r\n")
		for _, line := range section.lines {
			fmt.Fprintf(&text, "%s:%v\r\n", line.field, line.value)
		}
	}
	s.redis.Server().Dispatch(p, []string{"ECHO", text.String()})
}

// wants says whether a client that names these sections gets this one.
func wants(names []string, section string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		switch strings.ToLower(name) {
		case "default", "all", "everything":
			return true
		}
		return strings.EqualFold(name, section)
	})
}

type section struct {
	name  string
	lines []line
}

type line struct {
	field string
	value any
}

// sections are what programs look at before they use a Redis, and what miniredis counts.
func (s *Store) sections() []section {
	up := time.Since(s.began)
	srv := s.redis.Server()
	return []section{
		{"Server", []line{
			{"redis_version", version}, {"redis_mode", "standalone"},
			{"os", runtime.GOOS}, {"arch_bits", strconv.IntSize}, {"process_id", os.Getpid()},
			{"uptime_in_seconds", int(up.Seconds())}, {"uptime_in_days", int(up.Hours() / 24)},
		}},
		{"Clients", []line{{"connected_clients", srv.ClientsLen()}}},
		{"Memory", []line{{"used_memory", memory()}, {"maxmemory", 0}, {"maxmemory_policy", "noeviction"}}},
		{"Persistence", []line{{"loading", 0}, {"rdb_bgsave_in_progress", 0}, {"aof_enabled", 0}}},
		{"Stats", []line{
			{"total_connections_received", srv.TotalConnections()}, {"total_commands_processed", srv.TotalCommands()},
		}},
		{"Replication", []line{{"role", "master"}, {"connected_slaves", 0}}},
		{"Cluster", []line{{"cluster_enabled", 0}}},
	}
}

// memory is how many bytes of this process are in use: what the store takes of them is not known.
func memory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
