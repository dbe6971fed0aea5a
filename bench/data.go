package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

// Keys and values of the data table, as redis-benchmark makes them.
const (
	keyCount  = 10000
	valueSize = 16
)

// load is one column group of the data table.
type load struct {
	Command     string `json:"command"`
	Connections int    `json:"connections"`
	Pipeline    int    `json:"pipeline"`
}

// String reads like "GET, 50 connections, pipeline 16".
func (l load) String() string {
	return fmt.Sprintf("%s, %s, pipeline %d", l.Command, plural(l.Connections, "connection"), l.Pipeline)
}

var dataLoads = []load{
	{"GET", 50, 1}, {"SET", 50, 1}, {"GET", 50, 16}, {"SET", 50, 16}, {"GET", 1, 1}, {"SET", 1, 1},
}

// dataSample is one measurement of one load through one target.
type dataSample struct {
	PerSecond float64 `json:"commands_per_second"`
	P50       float64 `json:"p50_us"` // of a whole pipeline when there is one
	P99       float64 `json:"p99_us"`
	ProxyCPU  float64 `json:"proxy_cpu_us_per_command"` // 0 for direct
	RedisCPU  float64 `json:"redis_cpu_us_per_command"`
}

// measureData fills the report's data table. Each load is measured through all
// targets in turn before the next, so that a slow minute of the machine falls
// on all of them.
func measureData(ctx context.Context, s settings, b *environment, rep *report) error {
	if err := fillKeys(ctx, b.redisAddr); err != nil {
		return err
	}
	sizes := map[dataKey]int{}
	for round := range s.rounds {
		for _, l := range dataLoads {
			for _, t := range b.targets {
				key := dataKey{t.name, l}
				if t.problem != "" || rep.failed[key] != nil {
					continue
				}
				progress("round %d of %d: %v", round+1, s.rounds, key)
				err := rep.measureData(ctx, s, b, t, l, sizes)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				rep.note(key, err)
			}
		}
	}
	return nil
}

// measureData adds one sample. sizes remembers how many commands fill the time.
func (rep *report) measureData(ctx context.Context, s settings, b *environment, t *target, l load, sizes map[dataKey]int) error {
	key := dataKey{t.name, l}
	if sizes[key] == 0 {
		trial, err := redisBenchmark(ctx, t.addr, l, 1000*l.Pipeline+100*l.Connections)
		if err != nil {
			return err
		}
		// The first trial is mostly connecting; a second one is long enough to go by.
		trial, err = redisBenchmark(ctx, t.addr, l, max(1000, int(trial.PerSecond*0.2)))
		if err != nil {
			return err
		}
		sizes[key] = max(1000, int(trial.PerSecond*s.seconds))
	}
	n := sizes[key]
	before, err := readCPU(b.redis, t.proxy)
	if err != nil {
		return err
	}
	sample, err := redisBenchmark(ctx, t.addr, l, n)
	if err != nil {
		return err
	}
	after, err := readCPU(b.redis, t.proxy)
	if err != nil {
		return err
	}
	sample.RedisCPU = micros(after.redis-before.redis) / float64(n)
	sample.ProxyCPU = micros(after.proxy-before.proxy) / float64(n)
	rep.data[key] = append(rep.data[key], sample)
	return nil
}

// cpuTimes are what Redis and the proxy have used so far; proxy is 0 without one.
type cpuTimes struct{ redis, proxy time.Duration }

func readCPU(redis, proxy *program.Process) (c cpuTimes, err error) {
	if c.redis, err = cpuOf(redis); err == nil && proxy != nil {
		c.proxy, err = cpuOf(proxy)
	}
	return c, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// redisBenchmark runs redis-benchmark for n commands and reads its CSV.
func redisBenchmark(ctx context.Context, addr string, l load, n int) (dataSample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.CommandContext(ctx, "redis-benchmark", "-h", host, "-p", port, "--csv",
		"-t", l.Command, "-n", strconv.Itoa(n), "-c", strconv.Itoa(l.Connections), "-P", strconv.Itoa(l.Pipeline),
		"-d", strconv.Itoa(valueSize), "-r", strconv.Itoa(keyCount))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return dataSample{}, fmt.Errorf("redis-benchmark: %w: %.200s%.200s", err, stdout.String(), stderr.String())
	}
	sample, err := parseBenchmark(stdout.String(), l.Command)
	if err != nil {
		return dataSample{}, fmt.Errorf("%w: redis-benchmark printed %.300q", err, stdout.String()+stderr.String())
	}
	return sample, nil
}

// parseBenchmark reads the line of one test from redis-benchmark --csv.
func parseBenchmark(out, test string) (dataSample, error) {
	// Lines that are no CSV, such as warnings, may stand before the header.
	if i := bytes.Index([]byte(out), []byte(`"test"`)); i > 0 {
		out = out[i:]
	}
	rows, err := csv.NewReader(bytes.NewBufferString(out)).ReadAll()
	if err != nil {
		return dataSample{}, err
	}
	if len(rows) != 2 || rows[1][0] != test {
		return dataSample{}, fmt.Errorf("no line for %s", test)
	}
	figures := map[string]float64{}
	for i, column := range rows[0][1:] {
		if figures[column], err = strconv.ParseFloat(rows[1][i+1], 64); err != nil {
			return dataSample{}, err
		}
	}
	s := dataSample{PerSecond: figures["rps"], P50: figures["p50_latency_ms"] * 1000, P99: figures["p99_latency_ms"] * 1000}
	if s.PerSecond <= 0 {
		return dataSample{}, fmt.Errorf("no throughput for %s", test)
	}
	return s, nil
}

// fillKeys gives every key redis-benchmark may GET a value.
func fillKeys(ctx context.Context, addr string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	value := string(bytes.Repeat([]byte("x"), valueSize))
	w := bufio.NewWriter(c)
	for i := range keyCount {
		w.Write(command("SET", fmt.Sprintf("key:%012d", i), value)) // Flush reports what went wrong
		if i%500 != 499 {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for range 500 {
			if reply, err := c.reply(); err != nil || reply[0] != '+' {
				return fmt.Errorf("filling the keys: %q: %w", reply, err)
			}
		}
	}
	return nil
}
