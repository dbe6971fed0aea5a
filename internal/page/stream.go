package page

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

const (
	// mostStreams is how many browsers are kept fresh at once.
	mostStreams = 16
	// rest is the time between two states that a stream sends. It is two hundred times as long as all streams take to make theirs, if that
	// is more: with what the garbage costs afterwards they take a hundredth of a processor at most.
	rest     = time.Second
	restMost = 10 * time.Second
	// slowest is how long a client may take to read one state.
	slowest = 5 * time.Second
)

// kept are the parts of the page that a stream keeps fresh, by their names in the templates and in the document.
var kept = []string{"status", "cards", "locks", "hottest", "losses", "slow"}

// events sends each part of the page when it has changed (server-sent events), until the client goes, is too slow, or the page ends.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		http.Error(w, "too many browsers look at this page", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it
	out, wanted, sent, took := http.NewResponseController(w), asked(r), map[string][]byte{}, cost(0)
	for p.guard.Token == nil || p.guard.knows(r) { // a token that is replaced ends what it has let in
		began := time.Now()
		frame, err := p.changed(r.Context(), wanted, sent)
		if err != nil {
			p.Log.Error("the page for operators cannot be drawn", "error", err)
			return
		}
		took.note(time.Since(began))
		if err := out.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
			return
		}
		if _, err := w.Write(frame); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		if !p.pause(r.Context(), time.Duration(took)) {
			return
		}
	}
}

// cost is how long a state takes to make, as far as that is work: on a busy machine much of it is waiting for a processor.
type cost time.Duration

func (c *cost) note(took time.Duration) {
	if now := cost(took); *c == 0 || now < *c {
		*c = now
	} else {
		*c += (now - *c) / 8
	}
}

// pause waits until the next state is due, and says whether it ever is.
func (p *Page) pause(ctx context.Context, took time.Duration) bool {
	timer := time.NewTimer(max(rest, min(200*took*time.Duration(len(p.streams)), restMost)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.ended:
	}
	return false
}

// changed are the parts that are not as they were sent, as events. With none there is a comment, by which a client that has gone is noticed.
func (p *Page) changed(ctx context.Context, wanted filter, sent map[string][]byte) ([]byte, error) {
	v := p.view(ctx, wanted)
	v.Live = true
	var frame bytes.Buffer
	for _, name := range kept {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, v); err != nil {
			return nil, err
		}
		if bytes.Equal(b.Bytes(), sent[name]) {
			continue
		}
		sent[name] = b.Bytes()
		frame.WriteString("event: " + name + "\n")
		for line := range bytes.Lines(b.Bytes()) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				frame.WriteString("data: ")
				frame.Write(line)
				frame.WriteByte('\n')
			}
		}
		frame.WriteByte('\n')
	}
	if frame.Len() == 0 {
		frame.WriteString(": as before\n\n")
	}
	return frame.Bytes(), nil
}
