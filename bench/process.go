package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

// tryGet succeeds once a GET through addr is answered by Redis.
func tryGet(ctx context.Context, addr string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	return exchange{command("GET", "bench:ready"), "$"}.do(c)
}

// cpuOf returns the user and system time a process has used, from the
// scheduler's nanosecond counts of its threads (/proc/<pid>/stat has ticks of
// 10 ms). Threads of these servers do not end while they are measured.
func cpuOf(p *program.Process) (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.Cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("%s: no CPU figures in /proc: has it ended? %s", p.Name, p.Tail())
	}
	var sum int64
	for _, task := range tasks {
		line, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that ended between Glob and here
		}
		field, _, _ := bytes.Cut(line, []byte(" "))
		ns, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", task, err)
		}
		sum += ns
	}
	return time.Duration(sum), nil
}
