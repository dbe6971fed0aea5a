package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/lockproxy/lockproxy/internal/display"
)

// asker has what is shown. One question is put at a time.
type asker interface {
	ask(ctx context.Context, q *query) (facts, error)
}

// view is what is on the terminal: the proxy in a few lines, one list, and the keys. All but options, proxy and asked
// is the event loop's own.
type view struct {
	opts  options
	proxy asker
	asked chan *query // what is to be asked for next

	app    *tview.Application
	head   *tview.TextView
	table  *tview.Table
	foot   *tview.TextView
	filter *tview.InputField
	bottom *tview.Pages

	place
	from   *place // where one lock was chosen; nil: a list is shown
	query  *query // that is answered
	all    bool   // of all proxies
	rows   []record
	paused bool
	before facts // what the rates are counted from
	latest facts
}

// place is where the user is.
type place struct {
	list     *list
	lock     record // nil: none
	only     string // the filter, when the user has left
	sort     int    // by this column, from 1; 0: as the proxy sorts
	up       bool   // the other way round
	moved    bool   // the user has gone to a row, which stays selected wherever it is
	selected string // that row's identity, when rows were shown last
}

// Names of the pages at the bottom.
const (
	keysPage   = "keys"
	filterPage = "filter"
)

// plain gives every box the terminal's own background. It is tview's for all views, and so set once.
var plain = sync.OnceFunc(func() {
	tview.Styles.PrimitiveBackgroundColor, tview.Styles.ContrastBackgroundColor = tcell.ColorDefault, tcell.ColorDefault
})

func newView(o options, p asker) *view {
	plain()
	v := &view{opts: o, proxy: p, asked: make(chan *query, 1), app: tview.NewApplication(), head: tview.NewTextView(),
		table: tview.NewTable(), foot: tview.NewTextView(), filter: tview.NewInputField(), bottom: tview.NewPages()}
	v.head.SetTextColor(tcell.ColorDefault)
	v.foot.SetDynamicColors(true).SetTextColor(tcell.ColorDefault)
	v.table.SetFixed(1, 1).SetSelectedStyle(tcell.StyleDefault.Reverse(true))
	v.filter.SetLabel("only with: ").SetFieldBackgroundColor(tcell.ColorDefault).SetFieldTextColor(tcell.ColorDefault)
	v.filter.SetChangedFunc(func(string) { v.fill() }).SetDoneFunc(v.filtered)
	v.bottom.AddPage(filterPage, v.filter, true, false).AddPage(keysPage, v.foot, true, true)
	rows := tview.NewFlex().SetDirection(tview.FlexRow)
	rows.AddItem(v.head, 4, 0, false).AddItem(v.table, 0, 1, true).AddItem(v.bottom, 2, 0, false)
	v.app.SetRoot(rows, true).SetInputCapture(v.key).SetBeforeDrawFunc(v.keepPlace)
	v.all = o.all
	v.choose(0)
	v.head.SetText("asking " + o.target.Addr)
	return v
}

// run shows the view until the user leaves, or ctx ends: on a screen, or on the terminal when that is nil. What it asks
// then is not waited for: an update that comes after the last one is never taken from who brings it.
func (v *view) run(ctx context.Context, screen tcell.Screen) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	v.app.SetScreen(screen)
	go v.watch(ctx)
	return v.app.Run()
}

// watch asks the proxy again and again, and at once when something else is to be shown.
func (v *view) watch(ctx context.Context) {
	defer v.app.QueueUpdate(v.app.Stop)
	ticks := time.NewTicker(v.opts.every)
	defer ticks.Stop()
	for q := <-v.asked; ctx.Err() == nil; {
		f, err := v.proxy.ask(ctx, q)
		if ctx.Err() != nil {
			return
		}
		about := q
		v.app.QueueUpdateDraw(func() { v.told(about, f, err) })
		select {
		case <-ctx.Done():
		case <-ticks.C:
		case q = <-v.asked:
		}
	}
}

// told shows what the proxy answered.
func (v *view) told(q *query, f facts, err error) {
	switch {
	case v.paused && v.latest.rows != nil || q != v.query:
		return
	case err != nil:
		v.head.SetText(fmt.Sprintf("%s: %s", v.opts.target.Addr, display.Shown(err.Error())))
		return
	}
	lines := head(v.before, f)
	if q.lock != nil {
		lines[2] = f.lock
	}
	if f.at.Sub(v.before.at) > v.opts.every/2 {
		v.before = f
	}
	v.latest = f
	v.head.SetText(strings.Join(lines, "\n"))
	v.fill()
}

// fill writes the rows that are to be shown.
func (v *view) fill() {
	l, columns := v.list, v.query.shown()
	if at, _ := v.table.GetSelection(); v.moved && at >= 1 && at <= len(v.rows) {
		v.selected = l.identity(v.rows[at-1])
	}
	v.rows = matching(columns, v.latest.rows, v.filter.GetText())
	if v.sort %= len(columns) + 1; v.sort > 0 {
		slices.SortStableFunc(v.rows, columns[v.sort-1].compare)
	}
	if v.up {
		slices.Reverse(v.rows)
	}
	v.table.Clear()
	for i, c := range columns {
		title := c.title
		if i == v.sort-1 {
			title += map[bool]string{false: " ▾", true: " ▴"}[v.up]
		}
		v.table.SetCell(0, i, cell(title).SetSelectable(false).SetAttributes(tcell.AttrBold))
	}
	v.table.SetSelectable(len(v.rows) > 0, false) // without a row tview looks for the next one for ever
	for i, r := range v.rows {
		for at, text := range cells(columns, r) {
			v.table.SetCell(i+1, at, cell(text).SetMaxWidth(widest[columns[at].title]))
		}
	}
	is := func(r record) bool { return v.moved && l.identity(r) == v.selected }
	if i := slices.IndexFunc(v.rows, is); i >= 0 {
		v.table.Select(i+1, 0)
	}
}

func cell(text string) *tview.TableCell {
	return tview.NewTableCell(tview.Escape(text)).SetTextColor(tcell.ColorDefault)
}

// widest is how wide a column may be, where others choose what is in it: who holds a lock, and for how long, stays on
// the terminal. 0: as it likes.
var widest = map[string]int{"LOCK": 32, "WAITS FOR": 32, "OWNER": 16, "CLIENT": 32, "USER": 16}

// keepPlace keeps the table where the user is. When all rows are on the terminal, tview takes the user to be at their
// end, and follows that end once there are more; the selected row is kept in view instead.
func (v *view) keepPlace(tcell.Screen) (drawn bool) {
	v.table.SetOffset(v.table.GetOffset())
	v.table.Select(v.table.GetSelection())
	return false
}

// showKeys writes the last lines.
func (v *view) showKeys() {
	var b strings.Builder
	for i := range lists {
		format := "%d %s "
		if &lists[i] == v.list {
			format = "[::r]%d %s[::-] "
		}
		fmt.Fprintf(&b, format, i+1, lists[i].name)
	}
	pause, all := "pause", "all proxies"
	if v.paused {
		pause = "go on"
	}
	if v.all {
		all = "this proxy"
	}
	fmt.Fprintf(&b, "\n/ filter s sort r reverse a %s p %s q quit", all, pause)
	switch {
	case v.from != nil:
		b.WriteString(" Esc back")
	case v.list.ofLocks():
		b.WriteString(" Enter lock")
	}
	if only := v.filter.GetText(); only != "" {
		fmt.Fprintf(&b, " [::b]only with: %s[::-]", tview.Escape(display.Shown(only)))
	}
	v.foot.SetText(b.String())
}

// visit shows another place, from its beginning.
func (v *view) visit(p place) {
	v.place, v.latest, v.rows = p, facts{}, nil
	v.query = &query{list: p.list, rows: v.opts.rows, all: v.all, lock: p.lock}
	v.filter.SetText(p.only)
	v.fill()
	v.showKeys()
	v.table.Select(1, 0).ScrollToBeginning()
	select {
	case <-v.asked: // another was chosen before
	default:
	}
	v.asked <- v.query
}

// choose shows a list.
func (v *view) choose(at int) {
	v.from = nil
	v.visit(place{list: &lists[at], only: v.filter.GetText()})
}

// open shows the lock of the selected row, if it is about one.
func (v *view) open() {
	at, _ := v.table.GetSelection()
	if !v.list.ofLocks() || at < 1 || at > len(v.rows) || v.rows[at-1]["db"] == "" {
		return
	}
	from := v.place
	from.only, from.moved, from.selected = v.filter.GetText(), true, v.list.identity(v.rows[at-1])
	v.from = &from
	v.visit(place{list: &about, lock: v.rows[at-1]})
}

// back goes to where one lock was chosen; from a list it takes back the filter.
func (v *view) back() {
	if v.from == nil {
		v.filter.SetText("")
		v.showKeys()
		return
	}
	to := *v.from
	v.from = nil
	v.visit(to)
}

// everywhere shows what all proxies have, or only this one.
func (v *view) everywhere() {
	v.all, v.only = !v.all, v.filter.GetText()
	v.visit(v.place)
}

// sortBy sorts by another column.
func (v *view) sortBy(next int) {
	columns := len(v.query.shown())
	v.sort, v.up = v.sort+next+columns+1, false
	v.fill()
}

// key acts on a key, unless a filter is being typed.
func (v *view) key(e *tcell.EventKey) *tcell.EventKey {
	if v.app.GetFocus() == v.filter {
		return e
	}
	switch at := slices.IndexFunc(lists, func(l list) bool { return l.name == v.list.name }); e.Key() {
	case tcell.KeyTab:
		v.choose((at + 1) % len(lists))
	case tcell.KeyBacktab:
		v.choose((max(at, 0) + len(lists) - 1) % len(lists))
	case tcell.KeyEnter:
		v.open()
	case tcell.KeyEscape:
		v.back()
	case tcell.KeyCtrlL:
		v.app.Sync()
	case tcell.KeyRune:
		return v.letter(e)
	default:
		v.moved = true
		return e
	}
	return nil
}

// letter acts on the key of a letter, a digit or a sign.
func (v *view) letter(e *tcell.EventKey) *tcell.EventKey {
	switch r := e.Rune(); {
	case r >= '1' && r < '1'+rune(len(lists)):
		v.choose(int(r - '1'))
	case r == '/':
		v.bottom.SwitchToPage(filterPage)
		v.app.SetFocus(v.filter)
	case r == 's', r == '>':
		v.sortBy(1)
	case r == 'S', r == '<':
		v.sortBy(-1)
	case r == 'r', r == 'R':
		v.up = !v.up
		v.fill()
	case r == 'a':
		v.everywhere()
	case r == 'p':
		v.paused = !v.paused
		v.showKeys()
	case r == 'q':
		v.app.Stop()
	default:
		v.moved = v.moved || strings.ContainsRune("jkgG", r)
		return e
	}
	return nil
}

// filtered ends the typing of a filter; Escape takes it back.
func (v *view) filtered(key tcell.Key) {
	if key == tcell.KeyEscape {
		v.filter.SetText("")
	}
	v.bottom.SwitchToPage(keysPage)
	v.app.SetFocus(v.table)
	v.showKeys()
}
