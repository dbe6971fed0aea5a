package session

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// What Redis may answer from a thread shares no connection with the commands of others, which Redis answers meanwhile.
func TestThreadedCommandsShareNoConnection(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	one, other := dialWire(t, p.addr), dialWire(t, p.addr)
	for _, name := range []string{"flushall", "flushdb"} {
		one.expect("+OK\r\n", name)
		other.expect("$-1\r\n", "GET", "k")
		if list, err := redis.String(server.Do(t, "CLIENT", "LIST"), nil); err != nil || !strings.Contains(list, " cmd="+name+" ") {
			t.Errorf("GET went over the connection of %s: %s %v", name, list, err)
		}
	}
	told := commandtable.Listed([]byte("*1\r\n*7\r\n$4\r\nvsim\r\n:-1\r\n*2\r\n+readonly\r\n+module\r\n:1\r\n:1\r\n:1\r\n*0\r\n"))
	if len(told) != 1 || !told[0].Thread || !told[0].ReadOnly {
		t.Errorf("a module's command: %+v", told)
	}
}
