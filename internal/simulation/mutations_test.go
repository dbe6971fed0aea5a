package simulation

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
)

// withinThis is how much time of a processor a run may take to find a mistake, building not counted. How busy the machine is does not matter.
const withinThis = time.Minute

// The simulation finds each of the mistakes in integration/history/mutations that can be made in it: make mutations.
func TestMutations(t *testing.T) {
	if !*mutants {
		t.Skip("run by: make mutations")
	}
	all, err := history.ReadMutations("../../integration/history/mutations")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, m := range all {
		if m.Simulation == "" || !chosen(*only, m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			took, oracle, said := hunt(t, m)
			if oracle == "" {
				t.Errorf("not found within %v of a processor:\n%s", withinThis, said)
				return
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %.1f s |\n", m.Name, m.Simulation, oracle, took.Seconds())
		})
	}
	t.Logf("found:\n%s", table.String())
}

// hunt builds this test with the mistake and runs its profile until something is found, or the test that it names: by which oracle, "" for none.
func hunt(t *testing.T, m history.Mutation) (took time.Duration, oracle, said string) {
	dir := t.TempDir()
	overlay, err := m.Overlay("../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	mutant := filepath.Join(dir, "mutant")
	if text, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", mutant, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	test, profile := "TestSimulation", m.Simulation
	if strings.HasPrefix(profile, "Test") {
		test, profile = profile, ""
	}
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -t %d; exec "$0" "$@"`, int(withinThis.Seconds())), mutant, "-test.run", "^"+test+"$", "-test.v", "-profile", profile, "-forever", "-gap", "500ms",
		"-seed", fmt.Sprint(max(*seed, 1)), "-duration", length.String(), "-out", dir)
	text, _ := cmd.CombinedOutput() // it fails, or is ended at the limit
	took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if test == m.Simulation && strings.Contains(string(text), "--- FAIL: ") {
		return took, test, ""
	}
	_, found, is := strings.Cut(string(text), "VIOLATION ")
	if !is {
		if _, found, is = strings.Cut(string(text), "panic: "); !is {
			return took, "", tail(string(text))
		}
		found = "panic: " + found
	}
	oracle, _, _ = strings.Cut(found, ":")
	line, _, _ := strings.Cut(found, "\n")
	t.Logf("%s: found in %.1f s: %.300s", m.Name, took.Seconds(), line)
	return took, oracle, ""
}

func tail(s string) string { return s[max(0, len(s)-3000):] }
