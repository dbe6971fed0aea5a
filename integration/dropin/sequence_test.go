package dropin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// sequence is a script of several connections that send and wait; everything that arrives on each of them, in order,
// has to be the same from Redis and through the proxy. Each line is one step:
//
//	a: SET k v        sends on connection a and waits for one frame there; one write, several commands: a: MULTI ; GET k
//	a 3: SUBSCRIBE x  … waits for three frames, or for none (a 0: BLPOP k 0)
//	a ~: CLIENT ID    … numbers in what comes are not compared; with ?: only what kind of frame it is
//	a + 2             waits for two frames more: a message, the reply to a blocked command
//	a hangs up        closes a; a is closed: waits until the server has
//	blocked 1         waits until so many clients are blocked at the server
//	subscribed 1      waits until so many are subscribed to ch there: a server frees a client a moment after it has left
//
// A connection is made, and speaks the protocol at hand, when it is first named. At the end PING and RESET are sent on
// each that is open: what comes before RESET's reply counts too. {a} is a's CLIENT ID, "…" an argument with Go's escapes.
type sequence struct {
	name  string
	proto int // the only protocol it is for; 0: both
	steps string
}

// play is a sequence that is being run.
type play struct {
	addr, server string // where it connects; the server, to look at
	proto        int
	wires        map[string]*harness.Wire
	order        []string
	heard        map[string][]string // what came on each connection
	ids          map[string]string
	t            testing.TB
}

const (
	arrival   = harness.Patience // for a frame that has to come
	nothing   = "(nothing came)"
	stillOpen = "(still open)"
	hungUp    = "(closed)"
	farewell  = "PING ; RESET"
)

var (
	digitRuns = regexp.MustCompile(`[0-9]+`)
	stepForm  = regexp.MustCompile(`^(\w+) ?(\d*)([~?]?): (.*)$`)
	idForm    = regexp.MustCompile(`\{\w+\}`)
)

// run plays a sequence against addr and returns what each connection heard.
func (s sequence) run(t testing.TB, addr, server string, proto int) map[string][]string {
	p := &play{t: t, addr: addr, server: server, proto: proto, wires: map[string]*harness.Wire{}, heard: map[string][]string{}, ids: map[string]string{}}
	for line := range strings.Lines(s.steps) {
		if line = strings.TrimSpace(line); line != "" {
			p.step(line)
		}
	}
	for _, name := range p.order {
		p.end(name)
	}
	return p.heard
}

func (p *play) step(line string) {
	if m := stepForm.FindStringSubmatch(line); m != nil {
		frames := 1 + strings.Count(m[4], " ; ")
		if m[2] != "" {
			frames, _ = strconv.Atoi(m[2])
		}
		p.send(m[1], m[4])
		p.listen(m[1], frames, m[3])
		return
	}
	words := strings.Fields(line)
	switch rest := strings.Join(words[1:], " "); {
	case words[0] == "blocked":
		p.waitServer(line, "blocked_clients:"+words[1]+"\r\n", "INFO", "clients")
	case words[0] == "subscribed":
		p.waitServer(line, "*2\r\n$2\r\nch\r\n:"+words[1]+"\r\n", "PUBSUB", "NUMSUB", "ch")
	case rest == "hangs up":
		p.wire(words[0]).Close()
		delete(p.wires, words[0])
	case rest == "is closed":
		p.untilClosed(words[0])
	case strings.HasPrefix(rest, "+ "):
		frames, err := strconv.Atoi(words[2])
		if err != nil {
			p.t.Fatalf("step %q: %v", line, err)
		}
		p.listen(words[0], frames, "")
	default:
		p.t.Fatalf("step %q is not understood", line)
	}
}

// wire is the connection of that name.
func (p *play) wire(name string) *harness.Wire {
	if w := p.wires[name]; w != nil {
		return w
	}
	w := harness.Dial(p.t, p.addr)
	p.wires[name] = w
	p.order = append(p.order, name)
	if p.proto == 3 {
		if got, err := w.Try("HELLO", "3"); err != nil || got[0] != '%' {
			p.hear(name, got+hungUp)
		}
	}
	id, err := w.Try("CLIENT", "ID")
	if err != nil {
		p.hear(name, hungUp)
	}
	p.ids[name] = strings.Trim(id, ":\r\n")
	return w
}

func (p *play) send(name, text string) {
	w := p.wire(name)
	text = idForm.ReplaceAllStringFunc(text, func(id string) string {
		p.wire(strings.Trim(id, "{}"))
		return p.ids[strings.Trim(id, "{}")]
	})
	var commands [][]string
	for command := range strings.SplitSeq(text, " ; ") {
		commands = append(commands, p.words(command))
	}
	if _, err := io.WriteString(w.C, harness.EncodeAll(commands)); err != nil {
		p.hear(name, hungUp)
	}
}

func (p *play) words(command string) (args []string) {
	for _, word := range strings.Fields(command) {
		if strings.HasPrefix(word, `"`) {
			text, err := strconv.Unquote(word)
			if err != nil {
				p.t.Fatalf("%s: %v", word, err)
			}
			word = text
		}
		args = append(args, word)
	}
	return args
}

func (p *play) hear(name, frame string) { p.heard[name] = append(p.heard[name], frame) }

// listen takes so many frames in.
func (p *play) listen(name string, frames int, blur string) {
	for range frames {
		frame, err := p.wire(name).TryRead(arrival)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.hear(name, nothing)
			return
		case err != nil:
			p.hear(name, hungUp)
			return
		case blur == "~":
			frame = digitRuns.ReplaceAllString(frame, "n")
		case blur == "?":
			frame = frame[:1] + "…"
		}
		p.hear(name, frame)
	}
}

func (p *play) untilClosed(name string) {
	for {
		frame, err := p.wire(name).TryRead(arrival)
		if err == nil {
			p.hear(name, frame)
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.hear(name, stillOpen)
		}
		p.hear(name, hungUp)
		p.wire(name).Close()
		delete(p.wires, name)
		return
	}
}

// end sends a last PING and RESET, which answers in every state, and takes in what comes until then.
func (p *play) end(name string) {
	if p.wires[name] == nil {
		return
	}
	p.send(name, farewell)
	for last := ""; last != "+RESET\r\n" && last != nothing && last != hungUp; {
		p.listen(name, 1, "")
		last = p.heard[name][len(p.heard[name])-1]
	}
	p.wire(name).Close()
}

// waitServer waits until the server itself says text.
func (p *play) waitServer(step, text string, command ...string) {
	w := harness.Dial(p.t, p.server)
	defer w.Close()
	for end := time.Now().Add(arrival); !strings.Contains(w.Do(command...), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.hear("server", "(never "+step+")")
			return
		}
	}
}

// compare tells where two streams part.
func compare(name string, want, got []string) string {
	for i := range max(len(want), len(got)) {
		at := func(frames []string) string {
			if i < len(frames) {
				return frames[i]
			}
			return "(no more)"
		}
		if at(want) != at(got) {
			return fmt.Sprintf("connection %s, frame %d\n  redis     %s\n  lockproxy %s\n", name, i+1, harness.Quoted(at(want)), harness.Quoted(at(got)))
		}
	}
	return ""
}
