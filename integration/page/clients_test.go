package page

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A client is found by a part of its name and closed after it was said twice, by the keyboard alone. Nobody else is.
func TestPageClosesAClient(t *testing.T) {
	p := start(t)
	stuck, other := p.dial(t, "stuck-job"), p.dial(t, "other")
	stuck.want(t, "+OK", "LOCK", "a")
	other.want(t, "+OK", "LOCK", "b")
	tab := browser(t, p)
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/clients"), until(`document.body.dataset.state == 'live'`), until(`document.querySelectorAll('td.key').length == 2`),
		chromedp.SendKeys("#name", "uck-j"+kb.Enter), until(`document.querySelectorAll('td.key').length == 1 && document.querySelector('td.key').innerText.includes('stuck-job')`),
		chromedp.Focus("td.key a"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#kill"), chromedp.Focus("#kill"), chromedp.KeyEvent(kb.Enter))
	if is[bool](t, tab, `document.querySelector('form').checkValidity()`) || strings.Contains(p.said(), "was closed at the page") {
		t.Error("it was closed without a confirmation")
	}
	for _, what := range is[[]string](t, tab, wrong) {
		t.Errorf("/client: %s", what)
	}
	do(t, tab, chromedp.Focus("#sure"), chromedp.KeyEvent(" "), chromedp.Focus("#kill"), chromedp.KeyEvent(kb.Enter),
		until(`document.querySelector('.said')?.innerText == 'It was closed.'`), until(`document.querySelectorAll('td.key').length == 1`))
	if got := stuck.do("PING"); strings.HasPrefix(got, "+") {
		t.Errorf("it is there still: %s", got)
	}
	other.want(t, ":1", "UNLOCK", "b")
	if !strings.Contains(p.said(), "a client was closed at the page for operators") {
		t.Error(p.said())
	}
}
