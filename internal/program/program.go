// Package program runs servers for the tools that measure and compare, bench and
// integration/tcl: their output goes to files, and they end in order.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyTimeout = 20 * time.Second // from fork to the first answer
	stopTimeout  = 5 * time.Second  // from SIGTERM to SIGKILL
	tailLength   = 600              // bytes of the output that an error quotes
)

// Process is one program, with the processes it forks.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Done chan struct{} // closed when it has ended
	log  string        // file with all it printed
}

// Launch starts a program in dir with its output in <name>.log there. It has a
// process group of its own: Ctrl-C in a terminal is for the tool, which stops its
// servers in order.
func Launch(dir, name, program string, args ...string) (*Process, error) {
	p := &Process{Name: name, log: filepath.Join(dir, name+".log"), Done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.Cmd = exec.Command(program, args...)
	p.Cmd.Dir, p.Cmd.Stdout, p.Cmd.Stderr = dir, out, out
	p.Cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go p.wait()
	return p, nil
}

func (p *Process) wait() {
	p.Cmd.Wait() // how it ended is in its log
	close(p.Done)
}

// Ended says that the program itself has.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Stop asks the program to end, and kills what is left of it and of all that it forked.
func (p *Process) Stop() {
	p.Cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.Done:
	case <-time.After(stopTimeout):
	}
	p.Kill()
}

// Kill ends the program and all that it forked.
func (p *Process) Kill() {
	syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL) // fails when nobody of the group is left
	<-p.Done
}

// Ready waits until try succeeds; what it tries is to be answered at addr.
func (p *Process) Ready(ctx context.Context, addr string, try func(ctx context.Context, addr string) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := try(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done:
			return fmt.Errorf("%s ended at once: %s", p.Name, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer on %s (%w): %s", p.Name, addr, err, p.Tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Output is all that the program has printed, or why that cannot be read.
func (p *Process) Output() string {
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(all)
}

// Tail is the end of the output, on one line.
func (p *Process) Tail() string {
	all := p.Output()
	return strings.Join(strings.Fields(all[max(len(all)-tailLength, 0):]), " ")
}

// Ports are taken from below those that systems hand to outgoing connections, and from beside those of the Go tests.
const (
	firstPort = 11000
	lastPort  = 20999
)

var given sync.Map // ports that FreePort has returned

// FreePort returns a loopback port on which nobody listens, and each one once.
func FreePort() (port string, err error) {
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

// FreeAddr is a loopback address with a FreePort.
func FreeAddr() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", port), err
}

// Main is main of a tool: run has what parse made of the command line, and a context that SIGINT, SIGTERM and SIGHUP end. The exit
// code is 2 when parse fails, 1 when run does.
func Main[S any](name string, parse func(args []string) (S, error), run func(context.Context, S) error) {
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err = run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
