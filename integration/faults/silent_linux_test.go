package faults

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client that vanishes without a word, as when its machine loses power, needs a network that can be unplugged: a
// network namespace of the test's own, in which it runs itself once more.
const inNamespace = "TESTS_IN_NAMESPACE"

// The two ends of the cable.
const (
	ourEnd   = "10.77.0.1"
	theirEnd = "10.77.0.2"
)

func TestClientThatVanishes(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		testredis.NeedsProcesses(t)
		t.Parallel()
		runInNamespace(t)
		return
	}
	c := plugIn(t)
	server := testredis.Start(t)
	port := strconv.Itoa(testredis.FreePort(t))
	p := harness.StartProxy(t, server.URL(), "--listen", net.JoinHostPort(ourEnd, port), "--lock-watchdog-timeout", "8s", "--log-level", "debug", "--protected-mode", "no")
	holder, waiter := c.client(t, port), c.client(t, port)
	next, keeper, last := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	if got := holder.do(t, "LOCK idle") + waiter.do(t, "PING") + keeper.Do("LOCK", "busy"); got != "OKPONG+OK\r\n" {
		t.Fatal(got)
	}
	waiter.send(t, "LOCK busy BLOCK 0")
	harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, keeper, "busy") == 1 })
	last.Send("LOCK", "busy", "BLOCK", "0") // behind the one that vanishes
	next.Send("LOCK", "idle", "BLOCK", "0")
	harness.Eventually(t, "both wait", func() bool {
		return harness.WaitingHere(t, keeper, "busy") == 2 && harness.WaitingHere(t, keeper, "idle") == 1
	})
	c.unplug(t)
	began := time.Now()
	if got := keeper.Do("UNLOCK", "busy"); got != ":1\r\n" { // granted to a client that never hears of it
		t.Fatal(got)
	}
	for name, w := range map[string]*harness.Wire{"idle": next, "busy": last} {
		got := w.Read()
		took := time.Since(began)
		t.Logf("%s: the next holder has the lock %v after its holder had vanished", name, took.Round(100*time.Millisecond))
		if got != "+OK\r\n" || took < 3*time.Second || took > harness.Bound(25*time.Second) {
			t.Errorf("%s: %q after %v", name, got, took)
		}
	}
	harness.Eventually(t, "two clients are given up", func() bool { return strings.Count(p.Log(), "client left") >= 2 })
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, "client left") && strings.Contains(line, theirEnd) {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// runInNamespace runs this test again as the root of a network and user namespace of its own.
func runInNamespace(t *testing.T) {
	for _, tool := range []string{"unshare", "nsenter", "ip", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("*** CLIENTS WHOSE MACHINE VANISHES NOT TESTED: no %s here ***", tool)
		}
	}
	if out, err := exec.Command("unshare", "-rn", "true").CombinedOutput(); err != nil {
		t.Skipf("*** CLIENTS WHOSE MACHINE VANISHES NOT TESTED: no network namespaces here: %v %s ***", err, out)
	}
	again := exec.Command("unshare", "-rn", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "90s")
	again.Env = append(os.Environ(), inNamespace+"=1")
	out, err := again.CombinedOutput()
	t.Logf("in a network namespace:\n%s", out)
	switch {
	case err != nil:
		t.Error(err)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skip("*** CLIENTS WHOSE MACHINE VANISHES NOT TESTED: skipped in the namespace ***")
	}
}

// cable is a pair of virtual network cards; the far one is in a namespace of its own, held by process pid.
type cable struct{ pid string }

func plugIn(t *testing.T) *cable {
	tool(t, "ip", "link", "set", "lo", "up")
	holder := exec.Command("unshare", "-n", "sleep", "600")
	testredis.StartChild(t, holder)
	c := &cable{pid: strconv.Itoa(holder.Process.Pid)}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the far namespace is there", func() bool {
		there, err := os.Readlink("/proc/" + c.pid + "/ns/net")
		return err == nil && there != here
	})
	if out, err := exec.Command("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", c.pid).CombinedOutput(); err != nil {
		t.Skipf("*** CLIENTS WHOSE MACHINE VANISHES NOT TESTED: no virtual network cards here: %v %s ***", err, out)
	}
	tool(t, "ip", "address", "add", ourEnd+"/24", "dev", "near")
	tool(t, "ip", "link", "set", "near", "up")
	tool(t, "nsenter", "-n", "-t", c.pid, "ip", "address", "add", theirEnd+"/24", "dev", "far")
	tool(t, "nsenter", "-n", "-t", c.pid, "ip", "link", "set", "far", "up")
	return c
}

// unplug ends all traffic; neither side is told.
func (c *cable) unplug(t *testing.T) {
	tool(t, "nsenter", "-n", "-t", c.pid, "ip", "link", "set", "far", "down")
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v %s", name, strings.Join(args, " "), err, out)
	}
}

// farClient is a redis-cli at the far end.
type farClient struct {
	in  io.Writer
	out *bufio.Reader
}

func (c *cable) client(t *testing.T, port string) *farClient {
	t.Helper()
	cli := exec.Command("nsenter", "-n", "-t", c.pid, "redis-cli", "-h", ourEnd, "-p", port)
	in, err := cli.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cli.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	testredis.StartChild(t, cli)
	return &farClient{in, bufio.NewReader(out)}
}

func (f *farClient) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(f.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// do sends one command and returns the line that redis-cli prints.
func (f *farClient) do(t *testing.T, line string) string {
	t.Helper()
	f.send(t, line)
	answer, err := f.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}
