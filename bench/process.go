package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one server under measurement.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // file with all it printed
	done chan struct{} // closed when it has ended
}

// launch starts a server whose output goes to a file in dir.
func launch(dir, name, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	// Ctrl-C in a terminal is for us: we stop the servers in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	p.cmd.Wait() // how it ended is in its log
	close(p.done)
}

// stop asks the server to end, makes it after 5 s, and waits for it.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// ready waits until a GET through addr is answered by Redis.
func (p *process) ready(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		err := tryGet(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %s", p.name, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer on %s (%w): %s", p.name, addr, err, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func tryGet(ctx context.Context, addr string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	return exchange{command("GET", "bench:ready"), "$"}.do(c)
}

// tail returns the end of what the server printed, on one line.
func (p *process) tail() string {
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(all) > 600 {
		all = all[len(all)-600:]
	}
	return strings.Join(strings.Fields(string(all)), " ")
}

// cpu returns the user and system time the process has used, from the
// scheduler's nanosecond counts of its threads (/proc/<pid>/stat has ticks of
// 10 ms). Threads of these servers do not end while they are measured.
func (p *process) cpu() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("%s: no CPU figures in /proc: has it ended? %s", p.name, p.tail())
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

// freeAddr returns a loopback address nobody listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
