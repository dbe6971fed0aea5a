package harness

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// NodeState is one field of what INFO says of a node.
func NodeState(w *Wire, node int, field string) string {
	line := regexp.MustCompile(`lockproxy_quorum_node` + strconv.Itoa(node) + `:(.*)\r`).FindStringSubmatch(w.Do("INFO", "lockproxy"))
	if line == nil {
		return ""
	}
	for _, pair := range strings.Split(line[1], ",") {
		if name, value, _ := strings.Cut(pair, "="); name == field {
			return value
		}
	}
	return ""
}

// StartNodes starts independent servers, side by side.
func StartNodes(t *testing.T, n int) (nodes []*testredis.Server) {
	t.Helper()
	return testredis.StartSet(t, n)
}

var hereCount = regexp.MustCompile(`\$4\r\nhere\r\n:([0-9]+)\r\n`)

// WaitingHere is how many wait for the key on the proxy of w, as LOCKINFO says.
func WaitingHere(t testing.TB, w *Wire, key string) int {
	t.Helper()
	info := w.Do("LOCKINFO", key)
	m := hereCount.FindStringSubmatch(info)
	if m == nil {
		t.Fatalf("LOCKINFO %s: %q", key, info)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
