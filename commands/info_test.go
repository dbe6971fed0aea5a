package commands

import (
	"strings"
	"testing"
)

func infoLines(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

// What clients have done and wait for is added up over the masters, and the rest is the first one's.
func TestSumInfo(t *testing.T) {
	t.Parallel()
	one := infoLines("# Server", "redis_version:7.0.15", "tcp_port:1", "", "# Clients", "blocked_clients:1", "maxclients:100", "",
		"# Memory", "used_memory:1048576", "used_memory_human:1.00M", "used_memory_lua_human:32.00K", "",
		"# Persistence", "loading:0", "rdb_changes_since_last_save:7", "rdb_bgsave_in_progress:0", "",
		"# Commandstats", "cmdstat_get:calls=1,usec=10,usec_per_call=10.00,rejected_calls=0,failed_calls=1", "",
		"# Errorstats", "", "# Keyspace", "db0:keys=2,expires=1,avg_ttl=100")
	two := infoLines("# Server", "redis_version:7.0.15", "tcp_port:2", "", "# Clients", "blocked_clients:2", "maxclients:100", "",
		"# Memory", "used_memory:2097152", "used_memory_human:2.00M", "used_memory_lua_human:31.00K", "",
		"# Persistence", "loading:0", "rdb_changes_since_last_save:5", "rdb_bgsave_in_progress:1", "",
		"# Commandstats", "cmdstat_get:calls=3,usec=10,usec_per_call=3.33,rejected_calls=1,failed_calls=0",
		"cmdstat_set:calls=1,usec=2,usec_per_call=2.00,rejected_calls=0,failed_calls=0", "",
		"# Errorstats", "errorstat_ERR:count=1", "", "# Keyspace", "db0:keys=3,expires=3,avg_ttl=200")
	want := infoLines("# Server", "redis_version:7.0.15", "tcp_port:1", "", "# Clients", "blocked_clients:3", "maxclients:200", "",
		"# Memory", "used_memory:3145728", "used_memory_human:1.00M", "used_memory_lua_human:32.00K", "",
		"# Persistence", "loading:0", "rdb_changes_since_last_save:12", "rdb_bgsave_in_progress:1", "",
		"# Commandstats", "cmdstat_get:calls=4,usec=20,usec_per_call=10.00,rejected_calls=1,failed_calls=1",
		"cmdstat_set:calls=1,usec=2,usec_per_call=2.00,rejected_calls=0,failed_calls=0", "",
		"# Errorstats", "errorstat_ERR:count=1", "", "# Keyspace", "db0:keys=5,expires=4,avg_ttl=100")
	if got := sumInfo([]string{one, two}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := sumInfo([]string{one}); got != one {
		t.Errorf("of one master: %s", got)
	}
	empty := infoLines("# Keyspace")
	if got := sumInfo([]string{empty, infoLines("# Keyspace", "db0:keys=1,expires=0,avg_ttl=0")}); got != infoLines("# Keyspace", "db0:keys=1,expires=0,avg_ttl=0") {
		t.Errorf("keys at one master only: %q", got)
	}
	if got := sumInfo([]string{"", ""}); got != "" {
		t.Errorf("a section that Redis does not have: %q", got)
	}
}

func TestVersionNumber(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-rc.1+dirty": "1.2.3", "v0.0.0-20261127002716-46cdc1900000": "0.0.0", "(devel)": "0.0.0", "": "0.0.0", "v1.x": "1",
	} {
		if got := versionNumber(version); got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}
