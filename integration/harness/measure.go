package harness

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Metric reads one figure without labels from the proxy's Prometheus endpoint.
func (p *Proxy) Metric(name string) float64 {
	p.T.Helper()
	answer, err := http.Get("http://" + p.MetricsAddr() + "/metrics")
	if err != nil {
		p.T.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		p.T.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			figure, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return figure
		}
	}
	p.T.Fatalf("no figure %s", name)
	return 0
}

// RSS is the process' resident memory in bytes.
func (p *Proxy) RSS() int64 {
	for line := range strings.Lines(p.proc("status")) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	p.T.Fatal("no VmRSS")
	return 0
}

// CPU is the time the process has spent on a CPU; /proc counts in hundredths of a second.
func (p *Proxy) CPU() time.Duration {
	stat := p.proc("stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (p *Proxy) proc(file string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Pid(), file))
	if err != nil {
		p.T.Skip("needs /proc: ", err)
	}
	return string(b)
}

// Peak is the most resident memory the process has had, in bytes.
func (p *Proxy) Peak() int64 {
	for line := range strings.Lines(p.proc("status")) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	p.T.Fatal("no VmHWM")
	return 0
}

// Sanitizer is how much more memory the race detector takes.
func Sanitizer() int {
	if RaceEnabled {
		return 4
	}
	return 1
}
