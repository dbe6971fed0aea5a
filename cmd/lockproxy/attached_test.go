package main

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startAttached starts a process as a program does that wants to find it, and to have it end with itself; end ends its input.
func startAttached(t *testing.T, args ...string) (p *process, addresses []string, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--attached", "yes"}, args...)...)
	cmd.Env = os.Environ()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = told
	p = startCommand(t, cmd)
	told.Close()
	t.Cleanup(func() { out.Close() })
	lines := bufio.NewScanner(out)
	for range strings.Count(strings.Join(args, " "), "--listen") {
		if !lines.Scan() {
			t.Fatalf("it prints no address: %v", lines.Err())
		}
		addresses = append(addresses, lines.Text())
	}
	return p, addresses, func() { in.Close() }
}

// The program that starts it reads where it listens, and it ends with its input, although somebody holds a lock.
func TestAttached(t *testing.T) {
	t.Parallel()
	socket := t.TempDir() + "/s"
	p, addresses, end := startAttached(t, "--listen", "127.0.0.1:0", "--listen", "unix://"+socket)
	if len(addresses) != 2 || !strings.HasPrefix(addresses[0], "127.0.0.1:") || addresses[1] != socket {
		t.Fatalf("it listens at %q", addresses)
	}
	for network, addr := range map[string]string{"tcp": addresses[0], "unix": addresses[1]} {
		c, err := net.Dial(network, addr) // what is printed can be connected to at once
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	expect(t, p.dial("tcp", addresses[0]), "OK", "LOCK", "l")
	end()
	if code := p.exit(); code != exitForce {
		t.Errorf("with a lock held the exit code is %d", code)
	}
	p, addresses, end = startAttached(t, "--listen", "127.0.0.1:0")
	expect(t, p.dial("tcp", addresses[0]), "PONG", "PING")
	end()
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// With protected mode off the embedded store may be seen from a network.
func TestEmbeddedStoreInANetwork(t *testing.T) {
	t.Parallel()
	p, addresses, _ := startAttached(t, "--listen", "0.0.0.0:0", "--protected-mode", "no")
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	expect(t, p.dial("tcp", "127.0.0.1:"+port), "PONG", "PING")
	p.awaitLog("--protected-mode is no: whoever can connect is served")
}
