package page

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// cpu is the time the proxy has spent on a processor; /proc counts in hundredths of a second.
func (p *proxy) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// redis starts a Redis of the test's own, and returns its address.
func redis(t *testing.T) string {
	t.Helper()
	addr := free(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr
		}
		if time.Now().After(end) {
			t.Fatal("Redis never serves")
		}
	}
}

// drawing is what it costs a browser to read, lay out and paint the page once, in ms of a processor.
func drawing(t *testing.T, tab context.Context, p *proxy) (ms float64) {
	t.Helper()
	do(t, tab, performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks), emulation.SetScriptExecutionDisabled(true),
		chromedp.Navigate("http://"+p.admin+"/"), until(`document.querySelector('footer').offsetTop > 0`), chromedp.ActionFunc(func(ctx context.Context) error {
			all, err := performance.GetMetrics().Do(ctx)
			for _, one := range all {
				if one.Name == "TaskDuration" {
					ms = 1000 * one.Value
				}
			}
			return err
		}), emulation.SetScriptExecutionDisabled(false), performance.Disable())
	return ms
}

// The page with 10,000 locks that are held comes within 100 ms and is drawn with 150 ms of a processor, and to keep it fresh costs the proxy a hundredth of a processor at most.
// On a machine that has other things to do, which the long form has not, it is only seen that the page comes and is live.
func TestPageWithManyLocks(t *testing.T) {
	const locks = 10000
	p := start(t, "--upstream", "redis://"+redis(t))
	c := p.dial(t, "many")
	go func() {
		for i := range locks {
			c.send("LOCK", fmt.Sprintf("many:%05d", i), "OWNER", "job", "EX", "300")
		}
	}()
	for range locks {
		if line, err := c.in.ReadString('\n'); line != "+OK\r\n" {
			t.Fatal(line, err)
		}
	}
	long, window := os.Getenv("TESTS_LONG") == "1", 2*time.Second
	if long {
		window = 20 * time.Second // that locks are renewed in twice
	}
	spent := func() time.Duration {
		before := p.cpu(t)
		time.Sleep(window)
		return p.cpu(t) - before
	}
	without := spent()
	tab := browser(t, p)
	drawing(t, tab, p) // the first of a browser's is not counted whole
	took, drawn := make([]float64, 5), make([]float64, 5)
	for i := range took {
		do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), until(`document.body.dataset.state == 'live'`))
		took[i] = is[float64](t, tab, `(n => n.responseEnd - n.requestStart)(performance.getEntriesByType('navigation')[0])`)
		drawn[i] = drawing(t, tab, p)
	}
	if text := is[string](t, tab, `document.querySelector('[data-part=locks]').innerText`); !strings.Contains(text, "200 of 10,000 locks") {
		t.Error(text)
	}
	with := spent()
	for i := 0; long && i < 2 && with-without > window/100; i++ {
		t.Logf("one page costs %v in %v; once more, because whatever else the machine does adds to it", with-without, window)
		with = min(with, spent())
	}
	slices.Sort(took)
	slices.Sort(drawn)
	t.Logf("the page came in %.1f ms and was drawn in %.1f of a processor; in %v the proxy spent %v with one page open, %v with none", took, drawn, window, with, without)
	if median := took[len(took)/2]; long && median >= 100 {
		t.Errorf("the page took %.1f ms", median)
	}
	if long && drawn[0] >= 150 { // the fastest, because what else the machine does adds to it
		t.Errorf("to draw the page took %.1f ms of a processor", drawn[0])
	}
	if long && with-without > window/100 {
		t.Errorf("one page costs %v in %v", with-without, window)
	}
}
