package page

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/lock"
)

const (
	sampleEvery = 5 * time.Second
	samplesKept = 720
	historyKept = samplesKept * sampleEvery // an hour
	// samplesDrawn is of how many samples the highest is a point of a chart.
	samplesDrawn = 4
	pointsDrawn  = samplesKept / samplesDrawn
)

// sample is what was so at one moment, and what had happened since the one before.
type sample struct {
	held, waiting          int64
	granted, refused, lost float64 // a second; lost: in all
}

// history is the last samples, the oldest first.
type history struct {
	mu      sync.Mutex // guards all below
	samples []sample
	taken   int // in all
	before  lock.Stats
	at      time.Time
}

// watch takes samples until the page ends.
func (p *Page) watch() {
	p.history.add(p.Stats(), time.Now())
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			p.history.add(p.Stats(), now)
		case <-p.ended:
			return
		}
	}
}

// add notes a sample. The first is only what the next is compared with.
func (h *history) add(s lock.Stats, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seconds := now.Sub(h.at).Seconds(); !h.at.IsZero() && seconds > 0 {
		if len(h.samples) == samplesKept {
			h.samples = append(h.samples[:0], h.samples[1:]...)
		}
		h.taken++
		h.samples = append(h.samples, sample{
			held: s.Held, waiting: s.Waiting, lost: float64(s.Lost - h.before.Lost),
			granted: float64(s.Granted-h.before.Granted) / seconds, refused: float64(s.Refused-h.before.Refused) / seconds,
		})
	}
	h.before, h.at = s, now
}

// card is one figure, and how it came to be.
type card struct {
	Label, Now, Note string
	Link             string // to more about it; "": there is none
	Peak, Bad        bool   // the note is of the peak; it is bad
	Line, Area       string // of an SVG that is chartWide and chartHigh
	Said             string // in words
}

const chartWide, chartHigh = 180, 40

// cards are the figures, with those of now where they can be had. badly: of the losses some are bad.
func (h *history) cards(now lock.Stats, badly bool) []card {
	h.mu.Lock()
	defer h.mu.Unlock()
	granted, refused, recently := "–", "–", 0.0 // nothing is known before the first sample
	for _, s := range h.samples {
		granted, refused, recently = display.Figure(s.granted), display.Figure(s.refused), recently+s.lost
	}
	last := chart("lost", display.Figure(recently), h.points(func(s sample) float64 { return s.lost }))
	last.Note, last.Peak, last.Bad = display.Number(now.Lost)+" since the start", false, badly
	last.Link = "/events?kind=loss"
	return []card{
		chart("waiting", display.Number(now.Waiting), h.points(func(s sample) float64 { return float64(s.waiting) })),
		chart("held", display.Number(now.Held), h.points(func(s sample) float64 { return float64(s.held) })),
		chart("granted a second", granted, h.points(func(s sample) float64 { return s.granted })),
		chart("refused a second", refused, h.points(func(s sample) float64 { return s.refused })),
		last,
	}
}

// points are what is drawn of the samples. The same samples make a point as long as they are kept, so that peaks stay.
func (h *history) points(value func(sample) float64) (all []float64) {
	first := h.taken - len(h.samples)
	for i, s := range h.samples {
		if last := len(all) - 1; last < 0 || (first+i)%samplesDrawn == 0 {
			all = append(all, value(s))
		} else {
			all[last] = max(all[last], value(s))
		}
	}
	return all[max(0, len(all)-pointsDrawn):]
}

// chart draws values, the latest at the right.
func chart(label, now string, values []float64) card {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	c := card{Label: label, Now: now, Note: "peak " + display.Figure(most), Peak: true, Said: label + " in the last hour: at most " + display.Figure(most)}
	if len(values) < 2 {
		return c
	}
	var line strings.Builder
	step := float64(chartWide) / (pointsDrawn - 1)
	left := float64(chartWide) - step*float64(len(values)-1)
	for i, v := range values {
		y := chartHigh - 1.5
		if most > 0 {
			y -= (chartHigh - 4) * v / most
		}
		line.WriteString(strconv.FormatFloat(left+step*float64(i), 'f', 1, 64) + "," + strconv.FormatFloat(y, 'f', 1, 64) + " ")
	}
	c.Line = strings.TrimSpace(line.String())
	c.Area = strconv.FormatFloat(left, 'f', 1, 64) + "," + strconv.Itoa(chartHigh) + " " + c.Line + " " + strconv.Itoa(chartWide) + "," + strconv.Itoa(chartHigh)
	return c
}

// health is how the proxy and its nodes were when they were last asked.
type health struct {
	mu      sync.Mutex // guards all below
	trouble []string
	nodes   []Node
	at      time.Time
	asking  chan struct{} // closed when the answer is there; nil: nobody asks
	over    bool          // nobody is to ask any more
}

const (
	// HealthFor is for how long an answer is given again, healthOld for how long while the next one is asked for.
	healthFor, healthOld = 4 * time.Second, 8 * time.Second
	healthTime           = 2 * time.Second // for an answer
)

// now is how the proxy and its nodes are. While somebody looks the last answer is given until the next one is there, so
// that a node that hangs holds nobody up; who comes later waits for the next.
func (h *health) now(ctx context.Context, p *Page) ([]string, []Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) > healthFor && h.asking == nil && !h.over {
		h.asking = make(chan struct{})
		p.parts.Go(p.askHealth)
	}
	if asking := h.asking; asking != nil && time.Since(h.at) > healthOld {
		h.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	return h.trouble, h.nodes
}

// askHealth asks how the proxy and its nodes are.
func (p *Page) askHealth() {
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	trouble, nodes := p.Trouble(ctx), p.Nodes(ctx)
	h := &p.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble, h.nodes, h.at = trouble, nodes, time.Now()
	close(h.asking)
	h.asking = nil
}
