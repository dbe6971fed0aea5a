package clients

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// patience bounds every wait for something that must happen.
const patience = harness.Patience

// direct points the programs at Redis itself: are the data parts of the programs right?
var direct = flag.Bool("direct", false, "run the programs against Redis itself, without the lock steps")

func TestMain(m *testing.M) {
	flag.Parse()
	if harness.Asked() {
		_ = flag.Set("test.parallel", "3") // programs that wait much
	}
	os.Exit(harness.Main(m))
}

// ofConnection is a connection as an owner. No proxy notices that a named owner's lock has gone.
var ofConnection = regexp.MustCompile(`^[0-9a-f-]{36}:[0-9]+`)

// lose deletes a lock at Redis, behind the proxy, and waits until the proxy has noticed if that is a connection's.
func lose(addr string, up upstream, key string) error {
	server, err := up.at(key)
	if err != nil {
		return err
	}
	redisConn, err := redis.Dial("tcp", server.Addr())
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
	owners, err := redis.Strings(redisConn.Do("HKEYS", key))
	if err != nil {
		return err
	}
	if n, err := redis.Int(redisConn.Do("DEL", key)); n != 1 || err != nil {
		return fmt.Errorf("DEL %s: %d %v: was there a lock?", key, n, err)
	}
	if !slices.ContainsFunc(owners, ofConnection.MatchString) {
		return nil
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
func obey(t *testing.T, cmd *exec.Cmd, addr string, up upstream) (steps []string, err error) {
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
			if err := lose(addr, up, rest); err != nil {
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
