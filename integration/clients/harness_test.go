package clients

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// patience bounds every wait for something that must happen.
const patience = harness.Patience

// direct points the programs at Redis itself: are the data parts of the programs right?
var direct = flag.Bool("direct", false, "run the programs against Redis itself, without the lock steps")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.MainIfAsked(m))
}

// start starts a Redis and the proxy before it. The short watchdog makes the proxy notice a lost lock soon.
func start(t *testing.T) (server *testredis.Server, addr string) {
	t.Helper()
	server = testredis.Start(t)
	if *direct {
		return server, server.Addr()
	}
	return server, harness.StartProxy(t, server.URL(), "--lock-watchdog-timeout", "3s").Addr()
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
