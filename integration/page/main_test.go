// Package page looks at the page for operators with Chromium.
package page

import (
	"bufio"
	"context"
	"flag"
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
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	pictures = flag.String("pictures", "", "a folder for screenshots; none: none are made")
	busy     = flag.Duration("busy", 15*time.Minute, "with -pictures: for how long clients are busy before, so that the graphs are full")
)

const patience = time.Minute

// proxy is a lockproxy with the embedded store.
type proxy struct {
	listen, admin string
	log           string
	pid           int
}

func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// start builds lockproxy and runs it.
func start(t *testing.T, flags ...string) *proxy {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "lockproxy"), "./cmd/lockproxy")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := &proxy{listen: free(t), admin: free(t), log: filepath.Join(dir, "log")}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(dir, "lockproxy"), "--listen", p.listen, "--admin-listen", p.admin, "--drain-timeout", "0")
	cmd.Args = append(cmd.Args, flags...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = cmd.Process.Pid
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.admin); err == nil {
			c.Close()
			return p
		}
		if time.Now().After(end) {
			t.Fatal("it never serves: ", p.said())
		}
	}
}

func (p *proxy) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// client is a connection of a client, whose lock verbs may wait.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (p *proxy) dial(t *testing.T, name string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &client{conn, bufio.NewReader(conn)}
	if got := c.do("CLIENT", "SETNAME", name); got != "+OK" {
		t.Fatal(got)
	}
	return c
}

func (c *client) send(words ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	_, _ = c.Write([]byte(b.String())) // the reply does not come then
}

// do is the first line of the reply.
func (c *client) do(words ...string) string {
	c.send(words...)
	line, err := c.in.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(line, "\r\n")
}

// want is do, with the reply that there must be.
func (c *client) want(t *testing.T, reply string, words ...string) {
	t.Helper()
	if got := c.do(words...); got != reply {
		t.Fatalf("%q: %s, not %s", words, got, reply)
	}
}

// everyday is a proxy's everyday: locks of all kinds that are held and waited for, and one that is lost.
func everyday(t *testing.T, p *proxy) {
	p.dial(t, "billing-1").want(t, "+OK", "LOCK", "orders:eu:4711")
	for i := range 7 {
		p.dial(t, "billing-"+strconv.Itoa(i+2)).send("LOCK", "orders:eu:4711", "BLOCK", "0")
	}
	p.dial(t, "report").want(t, "+OK", "LOCK", "nightly:report", "EX", "3600")
	p.dial(t, "cron").want(t, "+OK", "LOCK", "cron:cleanup", "OWNER", "cleanup-job-17", "EX", "30")
	for i := range 3 {
		p.dial(t, "reader-"+strconv.Itoa(i+1)).want(t, "+OK", "RLOCK", "catalog:prices")
	}
	p.dial(t, "writer").send("WLOCK", "catalog:prices", "BLOCK", "0")
	p.dial(t, "mover-1").want(t, "+OK", "FAIRLOCK", "migration:shard-12")
	for i := range 2 {
		p.dial(t, "mover-"+strconv.Itoa(i+2)).send("FAIRLOCK", "migration:shard-12", "BLOCK", "0")
	}
	p.dial(t, "etl").want(t, "+OK", "LOCK", "etl:import:customers-and-their-addresses:2026-11-23T00:00:00Z:part-000042")
	p.dial(t, "cache").want(t, "+OK", "LOCK", "cache:warmup")
	p.dial(t, "flush").want(t, ":1", "DEL", "cache:warmup")
}

// work is clients that take locks from each other, until ctx ends.
func work(t *testing.T, ctx context.Context, p *proxy) {
	var all sync.WaitGroup
	for i := range 12 {
		c := p.dial(t, "worker-"+strconv.Itoa(i+1))
		all.Go(func() {
			for ctx.Err() == nil {
				name, rush := "stock:"+strconv.Itoa(rand.IntN(3)), 1.5+1.4*float64(time.Now().Unix()%240)/240
				if c.do("LOCK", name, "BLOCK", strconv.Itoa(20+rand.IntN(300))) == "+OK" {
					time.Sleep(time.Duration(rand.IntN(int(rush * 50e6))))
					c.do("UNLOCK", name)
				}
				time.Sleep(time.Duration(rand.IntN(250e6)))
			}
		})
	}
	t.Cleanup(all.Wait)
}

// browser is a tab of Chromium. What the page breaks of its own rules, and whom it asks beside the proxy, fails the test.
func browser(t *testing.T, p *proxy) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("*** Chromium is missing: the page for operators is NOT TESTED *** (Debian: apt-get install chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	run, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	tab, cancel := chromedp.NewContext(run)
	t.Cleanup(cancel)
	chromedp.ListenTarget(tab, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "http://"+p.admin+"/") {
				t.Errorf("the page asks for %s", e.Request.URL)
			}
		case *log.EventEntryAdded:
			t.Errorf("the browser says: %s %s", e.Entry.Text, e.Entry.URL)
		case *cdppage.EventJavascriptDialogOpening:
			t.Errorf("a script of a hostile name runs: %s", e.Message)
		}
	})
	if err := chromedp.Run(tab, log.Enable(), network.Enable(), emulation.SetDeviceMetricsOverride(1280, 900, 1, false)); err != nil {
		t.Fatal(err)
	}
	return tab
}

func do(t *testing.T, tab context.Context, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(tab, chromedp.Evaluate(`document.body.innerText`, &text)) // only to say more
		t.Fatalf("%v; the page says:\n%s", err, text)
	}
}

// until waits until an expression is true, be it of another document than is there when it is first asked.
func until(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			so := false
			if err := chromedp.Evaluate("Boolean("+expression+")", &so).Do(ctx); err == nil && so {
				return nil
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("never so: %s: %w", expression, ctx.Err())
			}
		}
	})
}

// is what an expression comes to.
func is[T any](t *testing.T, tab context.Context, expression string) (value T) {
	t.Helper()
	do(t, tab, chromedp.Evaluate(expression, &value))
	return value
}
