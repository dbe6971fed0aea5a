package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestCommandsAreCounted(t *testing.T) {
	u := usage{commands: 1}
	err := u.count("# Commandstats\r\ncmdstat_get:calls=3,usec=7,usec_per_call=2.33\r\ncmdstat_evalsha:calls=2,usec=40,usec_per_call=20\r\n" +
		"cmdstat_info:calls=9,usec=9,usec_per_call=1\r\n")
	if u.commands != 6 || u.scripts != 2 || u.inScripts != 40*time.Microsecond || err != nil {
		t.Errorf("%+v, %v", u, err)
	}
	if err := u.count("cmdstat_get:calls=x,usec=7\r\n"); err == nil {
		t.Error("calls=x is counted")
	}
}

func TestUsageOfProcess(t *testing.T) {
	before, err := cpuOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for {
		after, err := cpuOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after > before { // the question costs something itself
			break
		}
	}
	if bytes, err := residentOf(os.Getpid()); err != nil || bytes < 1<<20 {
		t.Errorf("%v bytes, %v", bytes, err)
	}
	if rest, err := idle(); err != nil || rest < 0 {
		t.Errorf("idle for %v, %v", rest, err)
	}
}

func TestPage(t *testing.T) {
	rep := newReport(settings{rounds: 1, seconds: 1})
	contended := lockLoad(handoff, handoffGoal)
	for _, f := range []struct {
		row  string
		load load
		s    sample
	}{
		{lockproxy, getP1, sample{PerSecond: 90e3, ProxyCPU: 7}}, {leastProxy, getP1, sample{ProxyCPU: 7.5}}, {twemproxy, getP1, sample{PerSecond: 80e3, ProxyCPU: 8}},
		{lockproxy, contended, sample{PerSecond: 5000, Changes: 5000}}, {redisson, contended, sample{PerSecond: 4000, Changes: 2000}},
		{herdLock, herdLoads[1], sample{Changes: 1500, Scripts: 2.75, Longest: 9400, Least: 90, Most: 120}}, {redisson, herdLoads[1], sample{Changes: 500}},
	} {
		rep.add(key{f.row, f.load}, func() (sample, error) { return f.s, nil })
	}
	rep.add(key{redsync, contended}, func() (sample, error) { return sample{}, errors.New("two\nlines") })
	rep.fact(fact{Name: idleRedis, Value: 0.05, Unit: "% of a CPU", Most: 0.1})
	rep.finish(&environment{versions: []string{"Redis 7"}, targets: []*target{{name: twemproxy}, {name: envoy, problem: "not installed"}, {name: lockproxy}}})
	figures, folder := rep.figures(), t.TempDir()
	page := strings.Join(strings.Fields(string(figures.page("performance", "SCALING.md", rep.charts()))), " ")
	for _, want := range []string{
		"| GET, 50 connections, pipeline 1 | – | 90.0 k |", "| GET P1, CPU ÷ twemproxy | 0.88 | ≤ 0.85 | 0.94 |", "A GET costs 0.88 times twemproxy's CPU.",
		"- **Waiting**: one lock that 128 clients want changes hands 5,000 times a second; with Redisson 2,000 times.",
		"| twemproxy | 80.0 k |",
		"- redsync: hand-off, 128 waiters: two lines", "- Envoy: not installed", `src="performance/get-cpu.svg"`, "one lock, 8 proxies", "| LOCK | 1.5 k | 3.00 | 2.75 | – | – | – | 9 | 90 | 120 |",
		`srcset="performance/hand-offs-dark.svg"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	for _, not := range []string{"idle, before Redis, % of a CPU", "| Envoy: not measured |"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if err := figures.write(folder); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"goals":    "what,measured,goal,met,floor,bound by\n\"GET P1, CPU ÷ twemproxy\",0.88,≤ 0.85,NO,0.94,",
		"own":      "what,measured,unit\n\"idle, before Redis\",0.05,% of a CPU\n",
		"commands": "load,what,a second,÷ direct,p50 µs,p99 µs,proxy CPU µs,÷ twemproxy,Redis CPU µs,busy %: client,busy %: proxy,busy %: Redis\n\"GET, 50 connections, pipeline 1\",twemproxy,80000,,,,8.00,1.00,",
		"proxies":  "load,what,changed hands,÷ Redisson,scripts a grant,µs in scripts,CPU µs: Redis,CPU µs: proxies,\"longest wait, ms\",fewest grants,most\n\"one lock, 8 proxies\",LOCK,1500,3.00,2.75,",
		"locks":    "load,what,a second,changed hands,÷ Redisson,p50 µs,p99 µs,commands,scripts,µs in scripts,CPU µs: Redis,CPU µs: proxy,CPU µs: client,busy %: all\n\"hand-off, 128 waiters\",lockproxy,5000,5000,2.50,",
	} {
		if text, err := os.ReadFile(filepath.Join(folder, file+".csv")); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %v:\n%s\nwant\n%s", file, err, text, want)
		}
	}
}

func TestChecksum(t *testing.T) {
	sums := map[string]bool{}
	for _, folder := range []fstest.MapFS{{"a": {Data: []byte("1")}}, {"a": {Data: []byte("2")}}, {"b": {Data: []byte("2")}}, {"a": {Data: []byte("1")}, "b": {}}} {
		sum, err := checksum(folder)
		if err != nil || sums[sum] {
			t.Errorf("%v: %s, %v", folder, sum, err)
		}
		sums[sum] = true
	}
}

func TestSpoken(t *testing.T) {
	for v, want := range map[float64]string{1.094: "1.09", 13.44: "13.4", 79: "79", 999.4: "999", 4499: "4,500", 76712: "76,700", 905912: "906,000", 1312000: "1.31 million"} {
		if got := spoken(v); got != want {
			t.Errorf("%v: %s, not %s", v, got, want)
		}
	}
}
