package page

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// What happens is seen without a reload, and who reads with the keyboard stays where they are.
func TestPageIsLive(t *testing.T) {
	p := start(t)
	everyday(t, p)
	tab := browser(t, p)
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), until(`document.body.dataset.state == 'live'`),
		chromedp.Evaluate(`window.same = true; document.querySelector('th.name a').focus()`, nil))
	focused := is[string](t, tab, `document.activeElement.id`)
	late := p.dial(t, "late")
	late.want(t, "+OK", "LOCK", "late:lock")
	do(t, tab, until(`document.querySelector('[data-part=locks]').innerText.includes('late:lock')`))
	late.want(t, ":1", "UNLOCK", "late:lock")
	do(t, tab, until(`!document.querySelector('[data-part=locks]').innerText.includes('late:lock')`))
	do(t, tab, until(`document.querySelector('.card:last-child strong').innerText == '1'`))
	if !is[bool](t, tab, `window.same`) || is[string](t, tab, `document.activeElement.id`) != focused || focused == "" {
		t.Errorf("the page was loaded again, or the focus has gone from %q", focused)
	}
	do(t, tab, chromedp.Click("#pause"), until(`document.body.dataset.state == 'still'`))
	do(t, tab, chromedp.Click("#pause"), until(`document.body.dataset.state == 'live'`))
	do(t, tab, chromedp.SendKeys("#name", "shard"+kb.Enter), until(`document.querySelectorAll('.locks tbody').length == 1 && document.body.dataset.state == 'live'`))
	if text := is[string](t, tab, `document.querySelector('.locks').innerText`); !strings.Contains(text, "migration:shard-12") || !strings.Contains(text, "mover-3") {
		t.Error(text)
	}
}

// A lock is freed after it was said twice, by the keyboard alone.
func TestPageFreesALock(t *testing.T) {
	p := start(t)
	holder := p.dial(t, "holder")
	holder.want(t, "+OK", "LOCK", "stuck")
	tab := browser(t, p)
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), chromedp.WaitVisible(`th.name a`), chromedp.Focus(`th.name a`), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitVisible("#force"), chromedp.Focus("#force"), chromedp.KeyEvent(kb.Enter))
	if is[bool](t, tab, `document.querySelector('form').checkValidity()`) || strings.Contains(p.said(), "freed by force") {
		t.Error("it was freed without a confirmation")
	}
	do(t, tab, chromedp.Focus("#sure"), chromedp.KeyEvent(" "), chromedp.Focus("#force"), chromedp.KeyEvent(kb.Enter),
		until(`document.querySelector('.said')?.innerText == 'It was freed.'`))
	p.dial(t, "next").want(t, "+OK", "LOCK", "stuck")
	if !strings.Contains(p.said(), `name="admin page"`) {
		t.Error(p.said())
	}
	if got := holder.do("UNLOCK", "stuck"); !strings.HasPrefix(got, "-LOCKLOST") {
		t.Error(got)
	}
}

// A lock that has changed hands since its page was drawn stays where it is.
func TestPageFreesNobodyElse(t *testing.T) {
	p := start(t)
	first, next := p.dial(t, "first"), p.dial(t, "next")
	first.want(t, "+OK", "LOCK", "job")
	tab := browser(t, p)
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/lock?db=0&name=job"), chromedp.WaitVisible("#force"))
	first.want(t, ":1", "UNLOCK", "job")
	next.want(t, "+OK", "LOCK", "job")
	do(t, tab, chromedp.Click("#sure"), chromedp.Click("#force"), until(`document.querySelector('.said')?.innerText.startsWith('Nothing was freed')`))
	// What proxies say is up to a second old: until then the holder has no name.
	do(t, tab, chromedp.Sleep(1200*time.Millisecond), chromedp.Navigate("http://"+p.admin+"/lock?db=0&name=job"), until(`document.querySelector('.people').innerText.includes('next')`))
	next.want(t, ":1", "UNLOCK", "job")
}

// Eight windows that look at once are all live: a browser has six connections to a server.
func TestPageInManyWindows(t *testing.T) {
	p := start(t)
	tab := browser(t, p)
	for range 8 {
		window, cancel := chromedp.NewContext(tab)
		defer cancel()
		do(t, window, chromedp.Navigate("http://"+p.admin+"/"), until(`document.body.dataset.state == 'live'`))
		tab = window
	}
}

// A proxy that hangs is told as one that has gone, after ten seconds, with the time of the last news; and so is its return.
func TestPageSaysThatItIsOld(t *testing.T) {
	p := start(t)
	tab := browser(t, p)
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), until(`document.body.dataset.state == 'live'`))
	syscall.Kill(p.pid, syscall.SIGSTOP)
	t.Cleanup(func() { syscall.Kill(p.pid, syscall.SIGCONT) })
	began := time.Now()
	do(t, tab, until(`document.body.dataset.state == 'lost'`))
	t.Log("it is said after ", time.Since(began))
	said := is[string](t, tab, `getComputedStyle(document.querySelector('header.top'), '::after').content`)
	if since := is[string](t, tab, `document.querySelector('header.top').dataset.since`); since == "" || !strings.Contains(said, since) {
		t.Errorf("%s does not say when the last news came, %s", said, since)
	}
	syscall.Kill(p.pid, syscall.SIGCONT)
	do(t, tab, until(`document.body.dataset.state == 'live'`))
}

// However narrow, a time is on one line; ends that somebody has asked for are not red.
func TestPageOfEnds(t *testing.T) {
	p := start(t)
	p.dial(t, "short").want(t, "+OK", "LOCK", strings.Repeat("a-long-name:", 20), "PX", "50")
	holder := p.dial(t, strings.Repeat("a-long-client-name-", 5))
	holder.want(t, "+OK", "LOCK", "forced")
	p.dial(t, "operator").want(t, ":1", "UNLOCK", "forced", "FORCE")
	tab := browser(t, p)
	for _, wide := range []int64{1280, 800, 700, 360} {
		do(t, tab, emulation.SetDeviceMetricsOverride(wide, 900, 1, false), chromedp.Navigate("http://"+p.admin+"/events?kind=end"),
			until(`document.querySelectorAll('[data-part=events] tbody tr').length == 2`))
		if broken := is[int](t, tab, `[...document.querySelectorAll('.list time')].filter(x => x.getClientRects().length > 1).length`); broken != 0 {
			t.Errorf("%d pixels wide: %d times break", wide, broken)
		}
		if over := is[bool](t, tab, `document.documentElement.scrollWidth > innerWidth`); over {
			t.Errorf("%d pixels wide: the page is wider", wide)
		}
	}
	if red := is[int](t, tab, `document.querySelectorAll('tr.bad').length`); red != 0 {
		t.Errorf("%d red", red)
	}
}

// Names do nothing but stand there, wherever one can stand, in each page as it comes and in what is put into it later.
func TestPageWithHostileNames(t *testing.T) {
	store := redis(t)
	const user = "<img/src=x/onerror=alert(6)>"
	p := start(t, "--upstream", "redis://"+store, "--operators", "default,"+user)
	hostile := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(2)>`, `"><svg onload=alert(3)>`, `' autofocus onfocus='alert(4)`, "javascript:alert(5)",
		"\xff\xfe", "\u202egnp.exe", "a\r\n\r\nevent: status\r\ndata: gone", strings.Repeat("long", 1000), "",
	}
	c := p.dial(t, "</td><svg/onload=alert(7)>")
	c.want(t, "+OK", "ACL", "SETUSER", user, "on", ">pass", "~*", "&*", "+@all")
	tab := browser(t, p)
	(&proxy{listen: store}).dial(t, "proxy").want(t, ":1", "PUBLISH", "lockproxy:ask", `{"id":"1","from":{"id":"0f8fad5b-d9cb-469f-a165-70867728950e",`+
		`"host":"<script>alert(10)</script>","version":"\"><svg/onload=alert(13)>"},"ask":{}}`)
	for _, name := range hostile {
		c.want(t, "+OK", "LOCK", name)
		p.dial(t, "w").send("LOCK", name, "BLOCK", "0")
		one := p.dial(t, "</td><svg/onload=alert(8)>")
		one.want(t, "+OK", "AUTH", user, "pass")
		one.want(t, "+OK", "LOCK", "owned:"+name, "OWNER", "<b>"+strings.ToValidUTF8(name[:min(len(name), 200)], "?"), "EX", "600")
		one.want(t, "+OK", "LOCK", "lost:"+name, "PX", "200")
		one.want(t, "+OK", "LOCK", "forced:"+name)
		c.want(t, ":1", "UNLOCK", "forced:"+name, "FORCE")
		if got := p.dial(t, "stranger").do("AUTH", name+"<script>alert(9)</script>", "wrong"); !strings.HasPrefix(got, "-") {
			t.Error(got)
		}
	}
	for _, path := range sheets(t, tab, p) {
		for _, wide := range []int64{1280, 360} {
			do(t, tab, emulation.SetDeviceMetricsOverride(wide, 800, 1, wide < 500), chromedp.Navigate("http://"+p.admin+path), chromedp.WaitVisible("footer"), until(`document.body.innerText.includes('alert(')`))
			if is[bool](t, tab, `!!document.getElementById('pause')`) {
				do(t, tab, until(`document.body.dataset.state == 'live'`), chromedp.Sleep(1500*time.Millisecond))
			}
			strange := is[[]string](t, tab, `[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on') || a.value.startsWith('javascript:') && a.name != 'value') ||
				e.matches('img, iframe, object, script:not([src="/page.js"]), svg:not(.card svg, .lease svg), .key b, bdi *')).map(e => e.outerHTML.slice(0, 90))`)
			if strange = append(strange, is[[]string](t, tab, wrong)...); len(strange) > 0 {
				t.Errorf("%s, %d pixels wide: %q", path, wide, strange)
			}
		}
	}
	var links []string
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), until(`document.querySelectorAll('.locks tbody').length == 20`), chromedp.Evaluate(`[...document.querySelectorAll('th.name a')].map(a => a.href)`, &links))
	for _, link := range links {
		do(t, tab, chromedp.Navigate(link), chromedp.WaitVisible("#force"))
		if text := is[string](t, tab, `document.querySelector('.people').innerText`); !strings.Contains(text, "<svg/onload=alert") {
			t.Errorf("%s: its holder is not there: %s", link, text)
		}
	}
}

// On a phone nothing is wider than it is, dark is dark, and without script there is a page.
func TestPageOfAllSorts(t *testing.T) {
	p := start(t)
	everyday(t, p)
	tab := browser(t, p)
	do(t, tab, emulation.SetDeviceMetricsOverride(360, 740, 2, true), chromedp.Navigate("http://"+p.admin+"/"), until(`document.body.dataset.state == 'live'`))
	if wide := is[int](t, tab, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("%d pixels wide", wide)
	}
	ground := `getComputedStyle(document.body).backgroundColor`
	light := is[string](t, tab, ground)
	do(t, tab, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	if dark := is[string](t, tab, ground); dark == light {
		t.Errorf("%s, light and dark", dark)
	}
	do(t, tab, emulation.SetScriptExecutionDisabled(true), chromedp.Navigate("http://"+p.admin+"/"), chromedp.WaitVisible(".locks"))
}

// A pattern, typed and sent by the keyboard, finds locks in Redis without a script of the page's; a name leads to its lock. Nothing is wider than a phone.
func TestPageSearchesRedis(t *testing.T) {
	p := start(t)
	everyday(t, p)
	w := p.dial(t, "redisson")
	w.want(t, ":1", "HSET", "redisson:job", "0f8fad5b-d9cb-469f-a165-70867728950e:52", "1")
	w.want(t, ":1", "PEXPIRE", "redisson:job", "600000")
	tab := browser(t, p)
	do(t, tab, emulation.SetDeviceMetricsOverride(360, 740, 2, true), chromedp.Navigate("http://"+p.admin+"/"),
		chromedp.SendKeys("#match", "*dis*"+kb.Enter), until(`document.querySelectorAll('.locks tbody').length == 1`))
	if text := is[string](t, tab, `document.querySelector('.locks').innerText`); !strings.Contains(text, "redisson:job") || !strings.Contains(text, "70867728950e:52") {
		t.Error(text)
	}
	if wide := is[int](t, tab, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("%d pixels wide", wide)
	}
	do(t, tab, chromedp.Click(".locks a"), chromedp.WaitVisible("#force"), chromedp.Navigate("http://"+p.admin+"/"),
		chromedp.SendKeys("#match", "redisson:job"+kb.Enter), chromedp.WaitVisible("#force"))
}
