package top

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/lockproxy/lockproxy/internal/display"
)

// asker has what is shown. One question is put at a time.
type asker interface {
	ask(ctx context.Context, l list, rows int) (facts, error)
}

// view is what is on the terminal: the proxy in a few lines, one list, and the keys. All but options, proxy and asked
// is the event loop's own.
type view struct {
	opts  options
	proxy asker
	asked chan int // the list that is to be asked for next

	app    *tview.Application
	head   *tview.TextView
	table  *tview.Table
	foot   *tview.TextView
	filter *tview.InputField
	bottom *tview.Pages

	list   int // of lists
	paused bool
	before facts // what the rates are counted from
	latest facts
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
	v := &view{opts: o, proxy: p, asked: make(chan int, 1), app: tview.NewApplication(), head: tview.NewTextView(), table: tview.NewTable(), foot: tview.NewTextView(),
		filter: tview.NewInputField(), bottom: tview.NewPages()}
	v.head.SetTextColor(tcell.ColorDefault)
	v.foot.SetDynamicColors(true).SetTextColor(tcell.ColorDefault)
	v.table.SetFixed(1, 1)
	v.filter.SetLabel("only with: ").SetFieldBackgroundColor(tcell.ColorDefault).SetFieldTextColor(tcell.ColorDefault)
	v.filter.SetChangedFunc(func(string) { v.fill() }).SetDoneFunc(v.filtered)
	v.bottom.AddPage(filterPage, v.filter, true, false).AddPage(keysPage, v.foot, true, true)
	rows := tview.NewFlex().SetDirection(tview.FlexRow)
	rows.AddItem(v.head, 4, 0, false).AddItem(v.table, 0, 1, true).AddItem(v.bottom, 1, 0, false)
	v.app.SetRoot(rows, true).SetInputCapture(v.key).SetBeforeDrawFunc(v.keepPlace)
	v.showKeys()
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

// watch asks the proxy again and again, and at once when another list is to be shown.
func (v *view) watch(ctx context.Context) {
	defer v.app.QueueUpdate(v.app.Stop)
	ticks := time.NewTicker(v.opts.every)
	defer ticks.Stop()
	for list := 0; ctx.Err() == nil; {
		f, err := v.proxy.ask(ctx, lists[list], v.opts.rows)
		if ctx.Err() != nil {
			return
		}
		shown := list
		v.app.QueueUpdateDraw(func() { v.told(shown, f, err) })
		select {
		case <-ctx.Done():
		case <-ticks.C:
		case list = <-v.asked:
		}
	}
}

// told shows what the proxy answered.
func (v *view) told(list int, f facts, err error) {
	switch {
	case v.paused && list == v.list && v.latest.rows != nil || list != v.list:
		return
	case err != nil:
		v.head.SetText(fmt.Sprintf("%s: %s", v.opts.target.Addr, display.Shown(err.Error())))
		return
	}
	lines := head(v.before, f)
	if f.at.Sub(v.before.at) > v.opts.every/2 {
		v.before = f
	}
	v.latest = f
	v.head.SetText(strings.Join(lines, "\n"))
	v.fill()
}

// fill writes the rows of the list that are to be shown.
func (v *view) fill() {
	l := &lists[v.list]
	v.table.Clear()
	for at, c := range l.columns {
		v.table.SetCell(0, at, tview.NewTableCell(c.title).SetSelectable(false).SetAttributes(tcell.AttrBold).SetTextColor(tcell.ColorDefault))
	}
	rows := l.matching(v.latest.rows, v.filter.GetText())
	v.table.SetSelectable(len(rows) > 0, false) // without a row tview looks for the next one for ever
	for i, cells := range rows {
		for at, cell := range cells {
			v.table.SetCell(i+1, at, tview.NewTableCell(tview.Escape(cell)).SetTextColor(tcell.ColorDefault).SetMaxWidth(widest[l.columns[at].title]))
		}
	}
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

// showKeys writes the last line.
func (v *view) showKeys() {
	var b strings.Builder
	for i, l := range lists {
		if i == v.list {
			fmt.Fprintf(&b, "[::r]%d %s[::-]  ", i+1, l.name)
		} else {
			fmt.Fprintf(&b, "%d %s  ", i+1, l.name)
		}
	}
	pause := "pause"
	if v.paused {
		pause = "go on"
	}
	fmt.Fprintf(&b, "  / filter  p %s  q quit", pause)
	if only := v.filter.GetText(); only != "" {
		fmt.Fprintf(&b, "  only with: %s", tview.Escape(only))
	}
	v.foot.SetText(b.String())
}

// choose shows another list.
func (v *view) choose(list int) {
	v.list, v.latest = list, facts{}
	v.showKeys()
	v.fill()
	v.table.Select(1, 0).ScrollToBeginning()
	select {
	case <-v.asked: // another was chosen before
	default:
	}
	v.asked <- list
}

// key acts on a key, unless a filter is being typed.
func (v *view) key(e *tcell.EventKey) *tcell.EventKey {
	if v.app.GetFocus() == v.filter {
		return e
	}
	switch r := e.Rune(); {
	case e.Key() == tcell.KeyTab:
		v.choose((v.list + 1) % len(lists))
	case e.Key() == tcell.KeyBacktab:
		v.choose((v.list + len(lists) - 1) % len(lists))
	case e.Key() != tcell.KeyRune:
		return e
	case r >= '1' && r < '1'+rune(len(lists)):
		v.choose(int(r - '1'))
	case r == '/':
		v.bottom.SwitchToPage(filterPage)
		v.app.SetFocus(v.filter)
	case r == 'p':
		v.paused = !v.paused
		v.showKeys()
	case r == 'q':
		v.app.Stop()
	default:
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
