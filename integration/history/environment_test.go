package history

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// proxy is one lockproxy under test. It is killed and started again on the same port.
type proxy struct {
	t     testing.TB
	up    upstream
	addr  string
	args  []string
	dir   string
	wire  *testredis.Proxy   // between it and the one Redis
	links []*testredis.Proxy // between it and the nodes of a quorum, or of a cluster, or the Sentinels

	mu    sync.Mutex // guards what follows
	child *testredis.Child
	lives int
}

// environment is what one round runs on.
type environment struct {
	upstream
	t       testing.TB
	nodes   []*node // of a quorum, which has the locks then
	proxies []*proxy
}

// makeEnvironment starts what the profile has upstream and so many proxies before it, each over wires of its own, and the nodes of a quorum, if
// any.
func makeEnvironment(t testing.TB, of *profile, proxies int) *environment {
	b := &environment{t: t, upstream: startUpstream(t, of.upstream)}
	b.addNodes(of.nodes)
	for range proxies {
		p := &proxy{t: t, up: b.upstream, dir: t.TempDir()}
		url, args := b.reach(t, p)
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
		p.args = slices.Concat([]string{"--listen", p.addr, "--upstream", url, "--log-level", "error"}, args, of.flags())
		b.reachNodes(p)
		t.Cleanup(p.showLogs)
		p.start()
		b.proxies = append(b.proxies, p)
	}
	for _, p := range b.proxies {
		p.ready()
	}
	b.awaitNodes()
	return b
}

// start runs the process. It belongs on the test's goroutine the first time.
func (p *proxy) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives++
	p.child = testredis.Launch(p.t, exec.Command(lockproxy(p.t), p.args...), p.log(p.lives))
}

func (p *proxy) log(life int) string { return filepath.Join(p.dir, strconv.Itoa(life)+".log") }

// ready waits until it answers.
func (p *proxy) ready() {
	p.t.Helper()
	for end := time.Now().Add(history.NoReply); ; time.Sleep(5 * time.Millisecond) {
		if c, err := p.up.dial(p.addr); err == nil {
			_, err = c.Do("PING")
			_ = c.Close()
			if err == nil {
				return
			}
		}
		if time.Now().After(end) {
			p.t.Fatalf("lockproxy does not answer PING; it said:\n%s", p.said(1))
		}
	}
}

// ask sends one command on a connection of its own; what is said instead of a text is the error.
func (p *proxy) ask(name string, args ...any) string {
	c, err := p.up.dial(p.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	text, err := redis.String(c.Do(name, args...))
	if err != nil {
		return err.Error()
	}
	return text
}

func (p *proxy) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child.Kill()
}

func (p *proxy) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.child.Signal(s) // ended: showLogs tells
}

func (p *proxy) said(life int) string {
	b, err := os.ReadFile(p.log(life))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// showLogs fails the test when a proxy raced, panicked or ended by itself.
func (p *proxy) showLogs() {
	for life := 1; life <= p.lives; life++ {
		text := p.said(life)
		bad := strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic: ") || strings.Contains(text, "fatal error: ")
		if bad {
			p.t.Error("lockproxy raced or panicked")
		}
		if bad || p.t.Failed() {
			if most := 8 << 10; len(text) > most {
				text = "…" + text[len(text)-most:]
			}
			p.t.Logf("lockproxy at %s, life %d, said:\n%s", p.addr, life, text)
		}
	}
}

// build builds the lockproxy under test.
func build(source, out string, flags ...string) error {
	args := append([]string{"build", "-o", out}, flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/lockproxy")...)
	cmd.Dir = source
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building lockproxy: %w\n%s", err, said)
	}
	return nil
}

// dice are those of one part of a run: the same for the same seed.
func dice(seed uint64, part int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(part))) }
