package main

import (
	"bufio"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The tests run this very binary as lockproxy.
const beLockproxy = "BE_LOCKPROXY_FOR_A_TEST"

const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(beLockproxy) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// process is a lockproxy with its log.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	read sync.WaitGroup

	mu  sync.Mutex
	log strings.Builder
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = os.Environ()
	return startCommand(t, cmd)
}

// startCommand starts a command that becomes lockproxy.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Env, beLockproxy+"=1")
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.read.Go(func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // the exit code is looked at
	})
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.read.Wait()
		if t.Failed() {
			t.Log(p.logged())
		}
	})
	return p
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// awaitLog waits until it has logged text.
func (p *process) awaitLog(text string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(p.logged(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("it never logs %q", text)
		}
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatal("does not end")
		return 0
	}
}

// dial connects as soon as the process serves.
func (p *process) dial(network, addr string) redis.Conn {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		c, err := redis.Dial(network, addr)
		if err == nil {
			p.t.Cleanup(func() { c.Close() })
			return c
		}
		if time.Now().After(end) {
			p.t.Fatal(err)
		}
	}
}

// freeAddr has a port that no outgoing connection is given meanwhile, as it is one below theirs.
func freeAddr(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
}

func expect(t *testing.T, c redis.Conn, want any, name string, args ...any) {
	t.Helper()
	got, err := c.Do(name, args...)
	if text, ok := got.([]byte); ok {
		got = string(text)
	}
	if err != nil || got != want {
		t.Fatalf("%s %v: %v, %v; want %v", name, args, got, err, want)
	}
}

func TestEmbeddedStore(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	p := start(t, "--listen", addr)
	a, b := p.dial("tcp", addr), p.dial("tcp", addr)
	expect(t, a, "OK", "SET", "k", "v", "PX", 100)
	expect(t, a, "OK", "LOCK", "orders")
	expect(t, b, nil, "LOCK", "orders")
	p.awaitLog("EMBEDDED STORE")
	waited := make(chan error, 1)
	go func() {
		_, err := redis.String(redis.DoWithTimeout(b, patience, "LOCK", "orders", "BLOCK", 60000))
		waited <- err
	}()
	time.Sleep(100 * time.Millisecond)
	a.Close() // frees it
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // its clock runs
		if got, _ := b.Do("GET", "k"); got == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the key never expires")
		}
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if _, err := b.Do("UNLOCK", "orders"); err != nil {
		t.Fatalf("UNLOCK in a drain: %v", err)
	}
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// The permissions and the group of a unix socket are those of the settings; a group that is not there is named.
func TestUnixSocketIsShared(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	groups, err := os.Getgroups()
	group := os.Getgid()
	if err == nil && len(groups) > 0 {
		group = groups[len(groups)-1]
	}
	if os.Getuid() == 0 {
		group = 12345
	}
	p := start(t, "--listen", "unix://"+path, "--unix-socket-mode", "0766", "--unix-socket-group", strconv.Itoa(group))
	expect(t, p.dial("unix", path), "PONG", "PING")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Gid; info.Mode().Perm() != 0o766 || int(got) != group {
		t.Errorf("%v of the group %d, want %d", info.Mode(), got, group)
	}
	p = start(t, "--listen", "unix://"+path+"2", "--unix-socket-group", "nobody has this name")
	if code := p.exit(); code != exitError || !strings.Contains(p.logged(), "unix-socket-group: group: unknown group") {
		t.Errorf("exit code %d, %s", code, p.logged())
	}
	for _, mode := range []string{"0", "9", "1770", "rwx"} {
		if p := start(t, "--unix-socket-mode", mode); p.exit() != exitUsage {
			t.Errorf("--unix-socket-mode %s is taken: %s", mode, p.logged())
		}
	}
}

func TestUnixSocketsAndRealRedis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	path := filepath.Join(t.TempDir(), "s")
	addr := freeAddr(t)
	args := []string{"--upstream", server.URL() + "/2", "--listen", addr + ",unix://" + path, "--log-format", "json"}
	first := start(t, args...)
	c := first.dial("unix", path)
	expect(t, c, "OK", "SET", "k", "v")
	expect(t, c, "OK", "LOCK", "l")
	expect(t, first.dial("tcp", addr), "v", "GET", "k")
	second := start(t, "--upstream", server.URL(), "--listen", "unix://"+path)
	if code := second.exit(); code != exitError || !strings.Contains(second.logged(), "another process listens there") {
		t.Errorf("second one on the same socket: exit code %d, %s", code, second.logged())
	}
	first.cmd.Process.Kill()
	first.exit()
	third := start(t, args...) // the socket is still there
	expect(t, third.dial("unix", path), "v", "GET", "k")
	direct := server.Dial(t)
	expect(t, direct, "OK", "SELECT", 2) // of the upstream's address, for data and locks
	expect(t, direct, int64(2), "EXISTS", "k", "l")
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	addr := freeAddr(t)
	p := start(t, "--upstream", server.URL(), "--listen", addr)
	expect(t, p.dial("tcp", addr), "OK", "LOCK", "l")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.awaitLog("draining")
	time.Sleep(50 * time.Millisecond)
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.exit(); code != exitForce {
		t.Errorf("exit code %d", code)
	}
	if said := p.logged(); !strings.Contains(said, "a second signal") || !strings.Contains(said, " holds l") {
		t.Errorf("the log does not say what was cut off: %s", said)
	}
	if got := server.Do(t, "EXISTS", "l"); got != int64(1) {
		t.Error("the lock of a holder was released by the drain")
	}
}

func TestWrongStarts(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--version", exitOK, ""},
		{"--help", exitOK, ""},
		{"--help-all", exitOK, ""},
		{"--no-such-flag", exitUsage, "no-such-flag"},
		{"--listen 0.0.0.0:0", exitError, "loopback only"},
		{"--listen :0", exitError, "loopback only"},
		{"--listen " + busy.Addr().String(), exitError, "address already in use"},
	} {
		p := start(t, strings.Fields(c.args)...)
		if code := p.exit(); code != c.code || !strings.Contains(p.logged(), c.says) {
			t.Errorf("%s: exit code %d, want %d; says %s", c.args, code, c.code, p.logged())
		}
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct{ clients, upstream, files, wantClients, wantUpstream int }{
		{10000, 0, 1 << 20, 10000, 10000}, // plenty
		{10000, 0, 20128, 10000, 10000},
		{10000, 0, 1024, 598, 298}, // too little for both: two thirds, one third
		{10000, 0, 100, 34, 16},
		{10, 0, 100, 10, 25}, // few clients leave more, at most half
		{10000, 50, 1024, 846, 50},
		{10000, 2000, 1024, 448, 448},
		{10000, 0, 2, 1, 1},
	} {
		clients, upstream := places(c.clients, c.upstream, c.files, log)
		if clients != c.wantClients || upstream != c.wantUpstream {
			t.Errorf("%d clients, %d upstream, %d files: %d, %d; want %d, %d",
				c.clients, c.upstream, c.files, clients, upstream, c.wantClients, c.wantUpstream)
		}
	}
	if openFiles() < 16 {
		t.Error(openFiles())
	}
}

// TestHungRedisDoesNotKeepTheProcess: a release that Redis does not answer is given up after a while.
func TestHungRedisDoesNotKeepTheProcess(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	addr := freeAddr(t)
	p := start(t, "--listen", addr, "--upstream", s.URL(), "--drain-timeout", "100ms")
	c := p.dial("tcp", addr)
	expect(t, c, "OK", "LOCK", "k")
	s.Stop()
	defer s.Cont()
	c.Close()
	time.Sleep(200 * time.Millisecond)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.exit()
}

// TestBuildText: a package says which version and which commit it is of; a build that nobody told says what the go command has noted:
// go install …@v1.0.0 the version, a build in a clone that and the commit.
func TestBuildText(t *testing.T) {
	before := [2]string{version, commit}
	defer func() { version, commit = before[0], before[1] }()
	installed := &debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}
	cloned := &debug.BuildInfo{Main: debug.Module{Version: "v1.0.1-0.20261130"}, Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "e5017e0f"}}}
	for _, c := range []struct {
		version, commit string
		info            *debug.BuildInfo
		want            string
	}{
		{"1.2.3", "4f97a3964cf0", cloned, "1.2.3 (commit 4f97a3964cf0"},
		{"1.2.3", "", installed, "1.2.3 (commit unknown"},
		{"", "", installed, "v1.0.0 (commit unknown"},
		{"", "", cloned, "v1.0.1-0.20261130 (commit e5017e0f"},
		{"", "", nil, " (commit unknown"},
	} {
		version, commit = c.version, c.commit
		noteBuild(c.info, c.info != nil)
		if got := buildText(); !strings.HasPrefix(got, c.want+", go1.") {
			t.Errorf("%q %q: %s; want %s", c.version, c.commit, got, c.want)
		}
	}
}

// The longest lease that the grammar knows is one in the embedded store, too.
func TestLongestLeaseEmbedded(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	p := start(t, "--listen", addr, "--drain-timeout", "0")
	first, second := p.dial("tcp", addr), p.dial("tcp", addr)
	for verb, other := range map[string]string{"LOCK": "LOCK", "WLOCK": "WLOCK", "RLOCK": "WLOCK"} {
		for _, owner := range [][]any{nil, {"OWNER", "o"}} {
			for _, lease := range [][]any{{"EX", 9999999999}, {"EX", 9007199254740}, {"PX", 9007199254740992}} {
				words := append(append([]any{"k"}, owner...), lease...)
				expect(t, first, "OK", verb, words...)
				expect(t, second, nil, other, "k")
				expect(t, first, int64(1), "RENEW", words...)
				expect(t, second, nil, other, "k")
				expect(t, first, int64(1), "UNLOCK", append([]any{"k"}, owner...)...)
			}
		}
	}
}
