package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keys and values, as redis-benchmark makes them.
const (
	keyCount    = 10000
	smallValue  = 16
	mixed       = 0 // as a length: smallValue, and longValue for one key of longOneOf
	longValue   = 100 << 10
	longOneOf   = 156
	allValues   = 64 << 20 // bytes of all values together, at most
	crowd       = 9000     // connections; a proxy with two files for each has enough where it may have 20,000
	manyClients = 1000     // connections from which on the clients are our own: redis-benchmark's figures have connecting in them
)

// load is what clients do in one measurement.
type load struct {
	What        string // GET, SET, or one of those below
	Connections int
	Pipeline    int
	Value       int // bytes, or mixed
}

const (
	pair    = "LOCK+UNLOCK" // a lock for each client
	handoff = "hand-off"    // one lock for all
	herd    = "one lock"    // for two clients of each of so many proxies
)

// String reads like "GET, 50 connections, pipeline 16" and "hand-off, 32 waiters".
func (l load) String() string {
	switch {
	case l.What == handoff:
		return handoff + ", " + plural(l.Connections, "waiter")
	case l.What == herd:
		return fmt.Sprintf("%s, %d proxies", herd, l.Connections/herdClients)
	case l.What == pair:
		return pair + ", " + plural(l.Connections, "client")
	case l.Value != smallValue:
		return fmt.Sprintf("%s, %s, values of %s", l.What, plural(l.Connections, "connection"), size(l.Value))
	case l.Connections >= manyClients:
		return fmt.Sprintf("%s, %s", l.What, plural(l.Connections, "connection"))
	}
	return fmt.Sprintf("%s, %s, pipeline %d", l.What, plural(l.Connections, "connection"), l.Pipeline)
}

func size(bytes int) string {
	switch {
	case bytes == mixed:
		return fmt.Sprintf("%s, one of %d of %s", size(smallValue), longOneOf, size(longValue))
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

var (
	getP1, getP16, getOne = load{"GET", 50, 1, smallValue}, load{"GET", 50, 16, smallValue}, load{"GET", 1, 1, smallValue}
	setP1, setP16         = load{"SET", 50, 1, smallValue}, load{"SET", 50, 16, smallValue}
	get10K, get1M         = load{"GET", 50, 1, 10 << 10}, load{"GET", 50, 1, 1 << 20}
	getMixed              = load{"GET", 50, 1, mixed}

	// dataLoads has those with the same values beside each other: the keys are filled anew when these change.
	dataLoads = []load{
		getP1, setP1, getP16, setP16, getOne, {"GET", 1000, 1, smallValue}, {"GET", crowd, 1, smallValue},
		{"GET", 50, 1, 100}, getMixed, get10K, get1M,
	}
)

// takesPart says which loads a way to Redis is measured with: those to a cluster with the plain ones, the least proxy where it is a floor.
func (t *target) takesPart(b *environment, l load) bool {
	switch {
	case t.problem != "" || t.name == leastLine:
		return false
	case t.redis != b.single:
		return l == getP1 || l == getP16
	}
	return t.name != leastProxy || slices.Contains([]load{getP1, getP16, getOne}, l)
}

// measureData measures each load through all targets in turn before the next, so that a slow minute of the machine falls on all of them.
func measureData(ctx context.Context, s settings, b *environment, rep *report) error {
	sizes := map[key]int{}
	for round := range s.rounds {
		filled := -1
		for _, l := range dataLoads {
			if l.Value != filled {
				if err := b.fill(ctx, l.Value); err != nil {
					return err
				}
				filled = l.Value
			}
			for _, t := range b.targets {
				k := key{t.name, l}
				if !t.takesPart(b, l) || rep.failed[k] != nil {
					continue
				}
				progress("round %d of %d: %v", round+1, s.rounds, k)
				rep.add(k, func() (sample, error) { return t.measure(ctx, s, l, sizes) })
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
	}
	return nil
}

// measure takes one sample. sizes remembers how many commands fill the time.
func (t *target) measure(ctx context.Context, s settings, l load, sizes map[key]int) (sample, error) {
	if l.Connections >= manyClients {
		return contestant{name: t.name, lock: rawGet, warm: 1}.race(ctx, s, t, l, itself())
	}
	k := key{t.name, l}
	if sizes[k] == 0 {
		least := 4 * l.Connections
		trial, _, err := t.redisBenchmark(ctx, l, min(1000*l.Pipeline+100*l.Connections, max(least, allValues/l.longest())))
		if err != nil {
			return sample{}, err
		}
		// The first trial is mostly connecting; a second one is long enough to go by.
		trial, _, err = t.redisBenchmark(ctx, l, max(least, int(trial.PerSecond*0.2)))
		if err != nil {
			return sample{}, err
		}
		sizes[k] = max(least, int(trial.PerSecond*s.seconds))
	}
	n := sizes[k]
	before, err := t.usage(ctx, 0)
	if err != nil {
		return sample{}, err
	}
	figures, client, err := t.redisBenchmark(ctx, l, n)
	if err != nil {
		return sample{}, err
	}
	after, err := t.usage(ctx, 0)
	if err != nil {
		return sample{}, err
	}
	after.client = client
	used := between(before, after, float64(n))
	used.PerSecond, used.P50, used.P99 = figures.PerSecond, figures.P50, figures.P99
	return used, nil
}

// redisBenchmark runs redis-benchmark for n commands and reads its CSV. client is the CPU time that it took.
func (t *target) redisBenchmark(ctx context.Context, l load, n int) (figures sample, client time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	host, port, _ := net.SplitHostPort(t.addr)
	args := []string{"-h", host, "-p", port, "--csv", "-t", l.What, "-n", strconv.Itoa(n), "-c", strconv.Itoa(l.Connections),
		"-P", strconv.Itoa(l.Pipeline), "-d", strconv.Itoa(l.Value), "-r", strconv.Itoa(l.keys())}
	if t.clustered() {
		args = append(args, "--cluster")
	}
	cmd := exec.CommandContext(ctx, "redis-benchmark", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return sample{}, 0, fmt.Errorf("redis-benchmark: %w: %.200s%.200s", err, stdout.String(), stderr.String())
	}
	figures, err = parseBenchmark(stdout.String(), l.What)
	if err != nil {
		err = fmt.Errorf("%w: redis-benchmark printed %.300q", err, stdout.String()+stderr.String())
	}
	return figures, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// parseBenchmark reads the line of one test from redis-benchmark --csv.
func parseBenchmark(out, test string) (sample, error) {
	// Lines that are no CSV, such as warnings and the names of a cluster's nodes, may stand before the header.
	if i := strings.Index(out, `"test"`); i > 0 {
		out = out[i:]
	}
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		return sample{}, err
	}
	if len(rows) != 2 || rows[1][0] != test {
		return sample{}, fmt.Errorf("no line for %s", test)
	}
	figures := map[string]float64{}
	for i, column := range rows[0][1:] {
		if figures[column], err = strconv.ParseFloat(rows[1][i+1], 64); err != nil {
			return sample{}, err
		}
	}
	s := sample{PerSecond: figures["rps"], P50: figures["p50_latency_ms"] * 1000, P99: figures["p99_latency_ms"] * 1000}
	if s.PerSecond <= 0 {
		return sample{}, fmt.Errorf("no throughput for %s", test)
	}
	return s, nil
}

// keys is how many keys a load uses: fewer when their values are large.
func (l load) keys() int { return min(keyCount, max(10, allValues/max(l.Value, 1))) }

// value is how many bytes the value of the i-th key has.
func (l load) value(i int) int {
	switch {
	case l.Value != mixed:
		return l.Value
	case i%longOneOf == 0:
		return longValue
	}
	return smallValue
}

// longest is the length of the longest of them.
func (l load) longest() int { return l.value(0) }

// fill gives every key that redis-benchmark may GET a value, and leaves no others.
func (b *environment) fill(ctx context.Context, value int) error {
	for _, r := range []*redis{b.single, b.cluster} {
		if r == nil {
			continue
		}
		for _, addr := range r.addrs {
			if err := fillKeys(ctx, addr, value); err != nil {
				return fmt.Errorf("filling the keys: %w", err)
			}
		}
	}
	return nil
}

// fillKeys does so on one server; the node of a cluster takes those that are its own.
func fillKeys(ctx context.Context, addr string, value int) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := (exchange{command("FLUSHALL"), "+OK"}).do(c); err != nil {
		return err
	}
	const chunk = 10
	l := load{Value: value}
	n, text := l.keys(), strings.Repeat("x", l.longest())
	w := bufio.NewWriter(c)
	for i := range n {
		w.Write(command("SET", dataKey(i), text[:l.value(i)])) // Flush reports what went wrong
		if i%chunk != chunk-1 && i != n-1 {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for range i%chunk + 1 {
			if reply, err := c.reply(); err != nil || reply[0] != '+' && !bytes.HasPrefix(reply, []byte("-MOVED")) {
				return fmt.Errorf("%.100q: %w", reply, err)
			}
		}
	}
	return nil
}
