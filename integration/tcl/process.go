package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyTimeout = 20 * time.Second // from fork to the first answered PING
	stopTimeout  = 5 * time.Second  // from SIGTERM to SIGKILL
)

// process is one server, or one run of the suite with the clients it forks.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // file with all it printed
	done chan struct{} // closed when it has ended
}

// launch starts a program in dir, in a process group of its own, with its output
// in <name>.log there.
func launch(dir, name, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
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

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and all that it forked.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
	}
	p.kill()
}

func (p *process) kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails when nobody of the group is left
	<-p.done
}

// ready waits until addr answers PING.
func (p *process) ready(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := ping(ctx, addr)
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

func ping(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err == nil && !strings.HasPrefix(string(answer[:n]), "+PONG") {
		err = fmt.Errorf("PING: %.60q", answer[:n])
	}
	return err
}

func (p *process) output() string {
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(all)
}

// tail returns the end of what the process printed, on one line.
func (p *process) tail() string {
	all := p.output()
	return strings.Join(strings.Fields(all[max(len(all)-600, 0):]), " ")
}

// Ports are taken from below those that systems hand to outgoing connections, and from beside those of the Go tests.
const (
	firstPort = 11000
	lastPort  = 20999
)

var given sync.Map // ports that freePort has returned

// freePort returns a loopback port on which nobody listens, and each one once.
func freePort() (port string, err error) {
	for range 1000 {
		port = strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort+1))
		if _, twice := given.LoadOrStore(port, true); twice {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
