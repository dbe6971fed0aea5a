package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// sheets are the paths of all pages that one can come to: those of the navigation, one of each kind that they link to,
// and a search.
func sheets(t *testing.T, tab context.Context, p *proxy) (paths []string) {
	t.Helper()
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), chromedp.WaitVisible("footer"), chromedp.Evaluate(`[...document.querySelectorAll('nav a')].map(a => a.pathname)`, &paths))
	if len(paths) == 0 || paths[0] != "/" {
		t.Fatalf("the navigation leads to %q", paths)
	}
	paths = append(paths, "/redis?db=0&name=*")
	for i := 0; i < len(paths); i++ {
		var links []string
		do(t, tab, chromedp.Navigate("http://"+p.admin+paths[i]), chromedp.WaitVisible("footer"),
			chromedp.Evaluate(`[...document.querySelectorAll('main a')].filter(a => a.origin == location.origin).map(a => a.pathname + a.search)`, &links))
		for _, link := range links {
			kind, _, _ := strings.Cut(link, "?")
			if !strings.HasSuffix(kind, ".json") && !slices.ContainsFunc(paths, func(s string) bool { return s == kind || strings.HasPrefix(s, kind+"?") }) {
				paths = append(paths, link)
			}
		}
	}
	if !slices.ContainsFunc(paths, func(s string) bool { return strings.HasPrefix(s, "/lock?") }) {
		t.Errorf("no way leads to a lock: %q", paths)
	}
	return paths
}

// wrong is JavaScript that says what of a page cannot be read, heard, or found: text that stands out too little (WCAG
// 2.1, 1.4.3), fields and links without a name, headings that are skipped, ids that are there twice or lead nowhere, and
// what is wider than the window.
const wrong = `(() => {
	const all = [], shown = e => e.checkVisibility({visibilityProperty: true}) && e.getClientRects().length;
	const what = e => e.outerHTML.slice(0, 90);
	const light = c => c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
	const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
	const over = (...colors) => { // what is seen of colors that lie on each other, the lowest first
		canvas.clearRect(0, 0, 1, 1);
		for (const c of colors) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); }
		return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
	};
	for (const e of document.body.querySelectorAll('*')) {
		const text = [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()), style = getComputedStyle(e);
		if (!text || !shown(e) || style.clipPath != 'none' || e.closest('.bar, thead') && getComputedStyle(e.closest('.bar, thead')).clipPath != 'none') continue;
		const grounds = [];
		for (let at = e; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
		const [a, b] = [light(over('white', ...grounds)), light(over('white', ...grounds, style.color))];
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05), size = parseFloat(style.fontSize);
		if (ratio < (size >= 24 || size >= 18.6 && style.fontWeight >= 700 ? 3 : 4.5)) all.push('contrast ' + ratio.toFixed(2) + ': ' + what(e));
	}
	for (const e of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
		if (!e.labels.length && !e.ariaLabel) all.push('no label: ' + what(e));
	for (const e of document.querySelectorAll('a, button, summary, th, figcaption, h1, h2, h3, label'))
		if (!e.textContent.trim() && !e.ariaLabel) all.push('no text: ' + what(e));
	for (const e of document.querySelectorAll('svg:not([aria-hidden=true])')) if (!e.ariaLabel) all.push('a picture without words: ' + what(e));
	for (const e of document.querySelectorAll('thead th, tbody th')) if (!e.scope) all.push('a heading of nothing: ' + what(e));
	const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
	for (const id of ids.filter((id, i) => ids.indexOf(id) != i)) all.push('twice: #' + id);
	for (const e of document.querySelectorAll('[aria-labelledby]')) if (!document.getElementById(e.getAttribute('aria-labelledby'))) all.push('leads nowhere: ' + what(e));
	const heads = [...document.querySelectorAll('h1, h2, h3, h4, h5')].map(e => +e.tagName[1]);
	if (heads[0] != 1 || heads.filter(h => h == 1).length != 1 || heads.some((h, i) => h > heads[i - 1] + 1) || !heads.includes(2)) all.push('headings ' + heads);
	for (const one of ['header', 'nav', 'main', 'footer']) if (document.querySelectorAll('body > ' + one + ', body > header ' + one).length != 1) all.push('not one ' + one);
	if (!document.documentElement.lang || !document.title.endsWith('· lockproxy')) all.push('title ' + document.title);
	const wide = document.documentElement.clientWidth; // innerWidth grows with what is too wide on a phone
	if (document.documentElement.scrollWidth > wide) {
		const widest = [...document.querySelectorAll('main *, header *, footer *')].filter(e => e.getBoundingClientRect().right > wide + 1);
		all.push('wider than ' + wide + ': ' + document.documentElement.scrollWidth + ' ' + widest.slice(0, 3).map(what).join(' | '));
	}
	return all;
})()`

// Every page can be read, heard and found one's way in, light and dark, on a desk and on a phone.
func TestPagesForEverybody(t *testing.T) {
	p := start(t)
	everyday(t, p)
	p.dial(t, "operator").want(t, ":1", "UNLOCK", "nightly:report", "FORCE")
	tab := browser(t, p)
	for _, path := range sheets(t, tab, p) {
		for _, scheme := range []string{"light", "dark"} {
			for _, wide := range []int64{1280, 700, 360} {
				do(t, tab, emulation.SetDeviceMetricsOverride(wide, 800, 1, wide < 500),
					emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
					chromedp.Navigate("http://"+p.admin+path), chromedp.WaitVisible("footer"))
				for _, what := range is[[]string](t, tab, wrong) {
					t.Errorf("%s, %s, %d pixels wide: %s", path, scheme, wide, what)
				}
			}
		}
	}
	do(t, tab, chromedp.Evaluate(`document.documentElement.style.setProperty('--soft', '#667'); document.querySelector('main').style.width = '500px';
		document.querySelector('main').insertAdjacentHTML('beforeend', '<h5>x</h5><input><a href="/" id="main"></a><svg></svg>')`, nil))
	for _, what := range []string{"contrast", "no label", "no text", "a picture", "twice", "headings", "wider"} {
		if found := is[[]string](t, tab, wrong); !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, what) }) {
			t.Errorf("%s: that is not noticed, but %q", what, found)
		}
	}
}

// With the keyboard one comes to everything that can be used, and sees where one is; the first step skips the navigation.
func TestPagesByKeyboard(t *testing.T) {
	p := start(t)
	everyday(t, p)
	tab := browser(t, p)
	for _, path := range sheets(t, tab, p) {
		for _, wide := range []int64{1280, 360} {
			do(t, tab, emulation.SetDeviceMetricsOverride(wide, 800, 1, false), chromedp.Navigate("http://"+p.admin+path), chromedp.WaitVisible("footer"))
			if is[bool](t, tab, `!!document.getElementById('pause')`) { // so that nothing changes meanwhile
				do(t, tab, until(`document.body.dataset.state == 'live'`), chromedp.Click("#pause"),
					chromedp.Evaluate(`document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')`, nil))
			}
			do(t, tab, chromedp.Evaluate(`window.left = new Set([...document.querySelectorAll('a, button, input:not([type=hidden]), select, summary')].filter(e => e.checkVisibility()))`, nil))
			for range is[int](t, tab, `left.size`) + 1 {
				do(t, tab, chromedp.KeyEvent(kb.Tab))
				if at := is[string](t, tab, `(e => {
					left.delete(e);
					const s = getComputedStyle(e), r = e.getBoundingClientRect();
					return e == document.body || s.outlineStyle != 'none' && parseFloat(s.outlineWidth) >= 2 && r.width && r.bottom > 0 && r.top < innerHeight ? '' : e.outerHTML.slice(0, 90);
				})(document.activeElement)`); at != "" {
					t.Errorf("%s, %d pixels wide: it is not seen that this has the focus: %s", path, wide, at)
				}
			}
			if missed := is[[]string](t, tab, `[...left].map(e => e.outerHTML.slice(0, 90))`); len(missed) > 0 {
				t.Errorf("%s, %d pixels wide: the keyboard does not lead to %q", path, wide, missed)
			}
		}
		do(t, tab, chromedp.Navigate("http://"+p.admin+path), chromedp.WaitVisible("footer"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), until(`location.hash == '#main'`))
	}
}

// Each page is there without a script, too, and says which it is.
func TestPagesWithoutScript(t *testing.T) {
	p := start(t)
	everyday(t, p)
	tab := browser(t, p)
	paths := sheets(t, tab, p)
	do(t, tab, emulation.SetScriptExecutionDisabled(true))
	for _, path := range paths {
		do(t, tab, chromedp.Navigate("http://"+p.admin+path), chromedp.WaitVisible("main h2"), chromedp.WaitVisible("nav a"))
		current := is[[]string](t, tab, `[...document.querySelectorAll('nav a[aria-current=page]')].map(a => a.pathname)`)
		if want := slices.DeleteFunc([]string{path}, func(s string) bool { return strings.Contains(s, "?") }); fmt.Sprint(current) != fmt.Sprint(want) {
			t.Errorf("%s says that it is %q", path, current)
		}
	}
}

// On a phone a lock is a line or two: 29 of them take 1,400 pixels at most. A tap anywhere on it leads to its page, and so does the keyboard.
func TestPageOnAPhone(t *testing.T) {
	const locks = 29
	p := start(t)
	c := p.dial(t, "shop-with-a-name-of-some-length")
	for i := range locks {
		c.want(t, "+OK", "LOCK", fmt.Sprintf("orders:customer:%06d:%s", i, strings.Repeat("long", i)))
	}
	tab := browser(t, p)
	do(t, tab, emulation.SetDeviceMetricsOverride(360, 740, 2, true), chromedp.Navigate("http://"+p.admin+"/?sort=name"), until(`document.querySelectorAll('.locks tbody').length == 29`))
	high, all := is[float64](t, tab, `document.querySelector('.locks').getBoundingClientRect().height`), is[int](t, tab, `document.documentElement.scrollHeight`)
	if t.Logf("%d locks are %.0f pixels high, the page %d", locks, high, all); high > 1400 {
		t.Errorf("%d locks are %.0f pixels high", locks, high)
	}
	for _, way := range []chromedp.Action{
		chromedp.ActionFunc(func(ctx context.Context) error {
			var at []float64
			if err := chromedp.Evaluate(`(r => [r.right - 8, r.bottom - 4])((e => (e.scrollIntoView({block: 'center'}), e.getBoundingClientRect()))(document.querySelectorAll('.locks tbody tr')[3]))`, &at).Do(ctx); err != nil {
				return err
			}
			return chromedp.MouseClickXY(at[0], at[1]).Do(ctx)
		}),
		chromedp.Tasks{chromedp.Evaluate(`document.querySelectorAll('.locks .key a')[3].focus()`, nil), chromedp.KeyEvent(kb.Enter)},
	} {
		do(t, tab, chromedp.Navigate("http://"+p.admin+"/?sort=name"), until(`document.querySelectorAll('.locks tbody').length == 29`), way,
			until(`location.pathname == '/lock' && location.search.includes('000003') && document.querySelector('#force')`))
	}
}

// What somebody has opened, ticked and stands on stays so when the part around it is drawn anew.
func TestPartsKeepWhatIsOpen(t *testing.T) {
	p := start(t)
	tab := browser(t, p)
	draw := `document.querySelector('[data-part=locks]').innerHTML = '<details id="d" open><summary id="s">more</summary><input type="checkbox" id="c" checked></details>'`
	answer := `window.fetch = async () => ({ok: true, json: async () => ({next: 50, parts: {locks: {mark: 'x' + performance.now(),
		html: '<details id="d"><summary id="s">anew</summary><input type="checkbox" id="c"></details>'}}})})`
	do(t, tab, chromedp.Navigate("http://"+p.admin+"/"), until(`document.body.dataset.state == 'live'`), chromedp.Evaluate(draw+`; document.getElementById('s').focus(); `+answer, nil),
		until(`document.getElementById('s').textContent == 'anew'`))
	if !is[bool](t, tab, `document.getElementById('d').open && document.getElementById('c').checked && document.activeElement.id == 's'`) {
		t.Error(is[string](t, tab, `document.querySelector('[data-part=locks]').innerHTML`))
	}
}
