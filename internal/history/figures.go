package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is what sort of fault one is. docs/FAULTS.md counts each of them.
type Kind string

const (
	ProxyKilled   Kind = "proxy: kill -9"
	ProxyStopped  Kind = "proxy: SIGSTOP"
	ServerKilled  Kind = "Redis: kill -9"
	ServerEmpty   Kind = "Redis: restart without data"
	ServerStopped Kind = "Redis: SIGSTOP or CLIENT PAUSE"
	Failover      Kind = "Redis: failover"
	SlotMoved     Kind = "Redis: slot moved"
	DiskFull      Kind = "Redis: full disk"
	Scripts       Kind = "Redis: scripts flushed"
	ClockSet      Kind = "Redis: clock set"
	Cut           Kind = "links: cut"
	OneWay        Kind = "links: replies dropped"
	Swallowed     Kind = "links: all swallowed"
	Slow          Kind = "links: slow"
	Apart         Kind = "links: cut off from several nodes"
)

// Figures are what one round of a mode was worth, or what many were.
type Figures struct {
	Mode             string
	Commit           string
	Date             time.Time
	Processors       int
	Seed             uint64 // of the first round; the next ones count on from it
	Rounds           int
	Proxies, Clients int
	Worked           time.Duration // simulated time, of a simulation
	Calls, Grants    int
	Unknown          int // calls whose outcome the client does not know
	Told             int // LOCKLOST
	Faults           map[Kind]int
	Violations       int
}

// Round are the figures of one round that has just been played: in this tree, on this machine.
func Round(mode string, seed uint64, proxies, clients int, worked time.Duration) Figures {
	return Figures{Mode: mode, Commit: commit(), Date: time.Now().UTC(), Processors: runtime.NumCPU(), Seed: seed, Rounds: 1,
		Proxies: proxies, Clients: clients, Worked: worked}
}

// commit is that of the tree, with "-dirty" if something in it is not committed.
var commit = sync.OnceValue(func() string {
	said, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(said))
})

// Count counts calls and faults.
func (f *Figures) Count(ops []*Op, faults []Fault) {
	for _, o := range ops {
		switch {
		case o.Verb == "CLOSE":
			continue
		case o.Acquires() && o.Outcome == OK:
			f.Grants++
		case o.Outcome == Unknown:
			f.Unknown++
		case o.Code == "LOCKLOST":
			f.Told++
		}
		f.Calls++
	}
	if f.Faults == nil {
		f.Faults = map[Kind]int{}
	}
	for _, x := range faults {
		if x.Kind != "" {
			f.Faults[x.Kind]++
		}
	}
}

// Add adds another round of the same mode. Of sizes that differ the greatest counts.
func (f *Figures) Add(o Figures) {
	if f.Rounds == 0 {
		o.Faults = maps.Clone(o.Faults)
		*f = o
		return
	}
	f.Seed = min(f.Seed, o.Seed)
	f.Proxies, f.Clients = max(f.Proxies, o.Proxies), max(f.Clients, o.Clients)
	f.Rounds += o.Rounds
	f.Worked += o.Worked
	f.Calls += o.Calls
	f.Grants += o.Grants
	f.Unknown += o.Unknown
	f.Told += o.Told
	f.Violations += o.Violations
	for kind, n := range o.Faults {
		f.Faults[kind] += n
	}
}

// Append writes the figures of a round at the end of a file, as a line of JSON.
func (f Figures) Append(path string) error {
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// ReadFigures reads what Append has written, and sums it up by mode. The modes are in the order of the file.
func ReadFigures(path string) (modes []Figures, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var round Figures
		if err := d.Decode(&round); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		i := slices.IndexFunc(modes, func(m Figures) bool { return m.Mode == round.Mode })
		if i < 0 {
			modes, i = append(modes, Figures{}), len(modes)
		}
		modes[i].Add(round)
	}
	return modes, nil
}

// Table is the modes side by side, in Markdown: what was done, and what came of it.
func Table(modes []Figures) string {
	var b strings.Builder
	if last := len(modes) - 1; last >= 0 {
		fmt.Fprintf(&b, "Commit %s, %s, %d processors.\n\n", modes[last].Commit, modes[last].Date.Format(time.DateOnly), modes[last].Processors)
	}
	row := func(name string, cell func(m Figures) string) {
		b.WriteString("| " + name + " |")
		for _, m := range modes {
			b.WriteString(" " + cell(m) + " |")
		}
		b.WriteByte('\n')
	}
	row("", func(m Figures) string { return m.Mode })
	b.WriteString("|---|" + strings.Repeat("--:|", len(modes)) + "\n")
	row("proxies, clients", func(m Figures) string { return fmt.Sprintf("%d, %d", m.Proxies, m.Clients) })
	row("time", func(m Figures) string { return m.Worked.Round(time.Second).String() })
	row("rounds", func(m Figures) string { return grouped(m.Rounds) })
	row("first seed", func(m Figures) string { return fmt.Sprint(m.Seed) })
	row("calls", func(m Figures) string { return grouped(m.Calls) })
	row("grants", func(m Figures) string { return grouped(m.Grants) })
	row("calls without a known outcome", func(m Figures) string { return grouped(m.Unknown) })
	row("losses told", func(m Figures) string { return grouped(m.Told) })
	kinds := map[Kind]bool{}
	for _, m := range modes {
		for kind := range m.Faults {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row(string(kind), func(m Figures) string { return grouped(m.Faults[kind]) })
	}
	row("**violations**", func(m Figures) string { return "**" + grouped(m.Violations) + "**" })
	return b.String()
}

// grouped is a number as people read it: 1,234,567.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
