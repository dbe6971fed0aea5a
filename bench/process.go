package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tryGet succeeds once a GET through addr is answered by Redis.
func tryGet(ctx context.Context, addr string) error { return try(ctx, addr, "$", "GET", "bench:ready") }

// tryPing succeeds once addr answers.
func tryPing(ctx context.Context, addr string) error { return try(ctx, addr, "+PONG", "PING") }

func try(ctx context.Context, addr, want string, args ...string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	return exchange{command(args...), want}.do(c)
}

// wholeCluster succeeds once the node at addr knows all others and serves.
func wholeCluster(ctx context.Context, addr string) error {
	info, err := ask(ctx, addr, "CLUSTER", "INFO")
	if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_size:3")) {
		err = errors.New("the cluster is not whole yet")
	}
	return err
}

// cpuOf returns the user and system time that a process has used, its threads that have ended included.
func cpuOf(pid int) (time.Duration, error) {
	const whole = 2 // CPUCLOCK_SCHED: the kernel's clock of a process is made of its id
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|whole), &ts); err != nil {
		return 0, fmt.Errorf("no CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// residentOf returns the memory of a process, in bytes.
func residentOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("statm of process %d: %q", pid, text)
	}
	pages, err := strconv.Atoi(fields[1])
	return float64(pages * os.Getpagesize()), err
}

// usage is what everybody has used so far.
type usage struct {
	at                   time.Time
	redis, proxy, client time.Duration
	idle                 time.Duration // of all CPUs
	commands, scripts    int64         // that Redis has run, those that scripts ran included
	inScripts            time.Duration // that Redis was in scripts
}

// usage reads it, of the client with that process id, too, unless it is 0.
func (t *target) usage(ctx context.Context, client int) (u usage, err error) {
	for i, node := range t.redis.nodes {
		info, err := ask(ctx, t.redis.addrs[i], "INFO", "commandstats")
		if err != nil {
			return u, err
		}
		if err := u.count(info); err != nil {
			return u, err
		}
		cpu, err := cpuOf(node.Cmd.Process.Pid)
		if err != nil {
			return u, fmt.Errorf("%w: has it ended? %s", err, node.Tail())
		}
		u.redis += cpu
	}
	for _, p := range append(t.beside, t.proxy) {
		if p == nil {
			continue
		}
		cpu, err := cpuOf(p.Cmd.Process.Pid)
		if err != nil {
			return u, fmt.Errorf("%w: has it ended? %s", err, p.Tail())
		}
		u.proxy += cpu
	}
	if client != 0 {
		if u.client, err = cpuOf(client); err != nil {
			return u, err
		}
	}
	u.idle, err = idle()
	u.at = time.Now()
	return u, err
}

// idle is how long CPUs have had nothing to do, or waited for a disk, since the machine started.
func idle() (time.Duration, error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text)) // cpu user nice system idle iowait …
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: %.60q", text)
	}
	rest, err1 := strconv.ParseInt(fields[4], 10, 64)
	disk, err2 := strconv.ParseInt(fields[5], 10, 64)
	return time.Duration(rest+disk) * tick, errors.Join(err1, err2)
}

// count adds what INFO commandstats says: "cmdstat_get:calls=3,usec=7,…".
func (u *usage) count(info string) error {
	for line := range strings.Lines(info) {
		name, figures, ok := strings.Cut(line, ":calls=")
		name, isCommand := strings.CutPrefix(name, "cmdstat_")
		if !ok || !isCommand || name == "info" {
			continue
		}
		calls, rest, _ := strings.Cut(figures, ",usec=")
		micro, _, _ := strings.Cut(rest, ",")
		n, err1 := strconv.ParseInt(calls, 10, 64)
		usec, err2 := strconv.ParseInt(micro, 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("INFO commandstats: %w", err)
		}
		u.commands += n
		if strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall") {
			u.scripts += n
			u.inScripts += time.Duration(usec) * time.Microsecond
		}
	}
	return nil
}

// sample is one measurement: of n commands, or pairs of taking and releasing a lock. Times and counts are for each of them; a figure
// there is none of is 0.
type sample struct {
	PerSecond float64
	Changes   float64 // how often a lock that all want came from another client
	P50       float64 // of a whole pipeline when there is one
	P99       float64
	ProxyCPU  float64
	RedisCPU  float64
	ClientCPU float64
	Commands  float64
	Scripts   float64
	InScripts float64
	Longest   float64 // µs that anybody waited for a lock that all want
	Least     float64 // grants of a client,
	Most      float64 // the fewest and the most
	Others    float64 // CPUs that others than client, proxy and Redis used meanwhile
}

// between is what n commands or pairs have used.
func between(from, to usage, n float64) sample {
	took := to.at.Sub(from.at)
	others := time.Duration(runtime.NumCPU())*took - (to.idle - from.idle) - (to.redis - from.redis) - (to.proxy - from.proxy) - (to.client - from.client)
	return sample{
		Others:   max(0, others.Seconds()/took.Seconds()),
		ProxyCPU: micros(to.proxy-from.proxy) / n, RedisCPU: micros(to.redis-from.redis) / n, ClientCPU: micros(to.client-from.client) / n,
		Commands: float64(to.commands-from.commands) / n, Scripts: float64(to.scripts-from.scripts) / n,
		InScripts: micros(to.inScripts-from.inScripts) / n,
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
