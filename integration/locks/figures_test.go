package locks

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// agreeing are the fields of INFO and LOCKPROXY STATS, with the metric that tells the same.
var agreeing = map[string]string{
	"clients": "clients", "clients_rejected": "clients_rejected_total",
	"entries_failed": "entries_failed_total", "logins_failed": "logins_failed_total",
	"upstream_connections": "upstream_connections", "upstream_connections_own": "upstream_own",
	"upstream_connections_refused": "upstream_refused_total", "pipes": "pipes", "pipe_failures": "pipe_failures_total",
	"forwarded":  "commands_forwarded_total",
	"locks_held": "locks_held", "locks_waiting": "locks_waiting", "locks_granted": "lock_granted_total",
	"locks_lost": "lock_lost_total", "locks_ended": "lock_ended_total", "locks_renewed": `lock_renewals_total{outcome="ok"}`,
}

// sums are the metrics of a proxy, by name without lockproxy_: each with its labels, and all of one name together.
func sums(t *testing.T, p *harness.Proxy) map[string]float64 {
	t.Helper()
	answer, err := http.Get("http://" + p.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		series, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "lockproxy_"), " ")
		n, _ := strconv.ParseFloat(value, 64)
		name, _, labelled := strings.Cut(series, "{")
		if all[series] += n; labelled {
			all[name] += n
		}
	}
	return all
}

// TestFiguresAgree: INFO, LOCKPROXY STATS and /metrics tell the same: also of locks of named owners, which the metric of
// held locks once left out, and of renewals.
func TestFiguresAgree(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--operators", "default", "--lock-watchdog-timeout", "2s")
	holder, waiter, ops := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	for _, command := range [][]string{{"LOCK", "a"}, {"LOCK", "lost"}, {"LOCK", "b", "OWNER", "me", "EX", "500"}, {"RLOCK", "r"}} {
		harness.Expect(t, holder, "+OK\r\n", command...)
	}
	server.Do(t, "DEL", "lost")
	waiter.Send("LOCK", "a", "BLOCK", "0")
	var info, stats map[string]string
	var metrics map[string]float64
	harness.Eventually(t, "all of them agree", func() bool {
		metrics = sums(t, p)
		info, stats = map[string]string{}, map[string]string{}
		for line := range strings.SplitSeq(ops.Do("INFO", "lockproxy"), "\r\n") {
			name, value, _ := strings.Cut(strings.TrimPrefix(line, "lockproxy_"), ":")
			info[name] = value
		}
		for name, value := range harness.Object(t, harness.Decode(t, ops.Do("LOCKPROXY", "STATS"))) {
			if n, is := value.(int64); is {
				stats[name] = strconv.FormatInt(n, 10)
			}
		}
		agree := info["locks_lost"] == "1" && info["locks_waiting"] == "1" && info["locks_renewed"] > "0"
		for field, metric := range agreeing {
			n, err := strconv.ParseFloat(info[field], 64)
			_, is := metrics[metric]
			agree = agree && err == nil && is && n == metrics[metric] && info[field] == stats[field]
		}
		return agree
	})
	if info["locks_held"] != "3" || info["locks_granted"] != "4" || info["oldest_hold_ms"] != "" || stats["oldest_hold_ms"] == "" {
		t.Errorf("INFO: %v\nSTATS: %v", info, stats)
	}
}
