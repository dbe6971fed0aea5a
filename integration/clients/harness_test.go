package clients

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// patience bounds every wait for something that must happen: wide, because the machine may be busy.
const patience = 30 * time.Second

// direct points the programs at Redis itself: are the data parts of the programs right?
var direct = flag.Bool("direct", false, "run the programs against Redis itself, without the lock steps")

// binary is the lockproxy under test, built by TestMain when the clients were asked for.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

// asked says that -run names these tests: they install packages and take minutes, which nobody wants from ./... .
func asked() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "Interop") }

func buildAndRun(m *testing.M) int {
	if !asked() || *direct {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lockproxy-clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "lockproxy")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/lockproxy")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building lockproxy:", err)
		return 1
	}
	return m.Run()
}

// start starts a Redis and the proxy before it. The short watchdog makes the proxy notice a lost lock soon.
func start(t *testing.T) (server *testredis.Server, addr string) {
	t.Helper()
	server = testredis.Start(t)
	if *direct {
		return server, server.Addr()
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	ctx, stop := context.WithCancel(context.Background())
	var log strings.Builder
	cmd := exec.CommandContext(ctx, binary, "--listen", addr, "--upstream", server.URL(), "--lock-watchdog-timeout", "3s")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		if t.Failed() || strings.Contains(log.String(), "panic: ") {
			t.Errorf("lockproxy said:\n%s", log.String())
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c, err := redis.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return server, addr
		}
		if time.Now().After(end) {
			t.Fatal("lockproxy does not listen")
		}
	}
}

// lose deletes a lock at Redis, behind the proxy, and waits until the proxy has noticed.
func lose(addr, behind, key string) error {
	redisConn, err := redis.Dial("tcp", behind)
	if err != nil {
		return err
	}
	defer redisConn.Close()
	proxyConn, err := redis.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer proxyConn.Close()
	before, err := lossesOf(proxyConn)
	if err != nil {
		return err
	}
	if n, err := redis.Int(redisConn.Do("DEL", key)); n != 1 || err != nil {
		return fmt.Errorf("DEL %s: %d %v: was there a lock?", key, n, err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if now, err := lossesOf(proxyConn); err != nil || now > before {
			return err
		}
	}
	return fmt.Errorf("the loss of %s is not noticed", key)
}

func lossesOf(c redis.Conn) (int, error) {
	info, err := redis.String(c.Do("INFO", "lockproxy"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if n, found := strings.CutPrefix(strings.TrimSpace(line), "lockproxy_locks_lost:"); found {
			return strconv.Atoi(n)
		}
	}
	return 0, fmt.Errorf("INFO lockproxy counts no losses: %q", info)
}

// obey runs the program, carries out its wishes ("lose <key>") and returns the steps it passed ("ok <step>").
func obey(t *testing.T, cmd *exec.Cmd, addr, behind string) (steps []string, err error) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "ok":
			steps = append(steps, rest)
		case "lose":
			if err := lose(addr, behind, rest); err != nil {
				t.Error(err)
			}
			fmt.Fprintln(in, "lost") // a program that has ended shows in its exit code
		default:
			t.Log(lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		return steps, fmt.Errorf("%w\n%s", err, complaints.String())
	}
	return steps, nil
}
