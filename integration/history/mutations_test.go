package history

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
)

// withinThis is how long a run may take to find a mistake, building not counted.
const withinThis = time.Minute

func readMutations(t *testing.T) []history.Mutation {
	t.Helper()
	all, err := history.ReadMutations("mutations")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every mutation fits the source as it is.
func TestMutationsFit(t *testing.T) {
	for _, m := range readMutations(t) {
		if _, err := m.Overlay("../..", t.TempDir()); err != nil {
			t.Error(err)
		}
	}
}

// Histories find each of the mistakes in mutations/ within a minute: make mutations.
func TestMutations(t *testing.T) {
	if !*mutants {
		t.Skip("run by: make mutations")
	}
	var table strings.Builder
	for _, m := range readMutations(t) {
		if m.Profile == "" || *only != "" && !strings.Contains(","+*only+",", ","+m.Name+",") {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			took, oracle, said := hunt(t, m)
			if oracle == "" {
				t.Errorf("not found within %v:\n%s", withinThis, said)
				return
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %.1f s |\n", m.Name, m.What, m.Profile, oracle, took.Seconds())
		})
	}
	t.Logf("found:\n%s", table.String())
}

// hunt builds the mistake and runs its profile until something is found: by which oracle, "" for none.
func hunt(t *testing.T, m history.Mutation) (took time.Duration, oracle, said string) {
	dir := t.TempDir()
	overlay, err := m.Overlay("../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	mutant := filepath.Join(dir, "mutant")
	if err := build("../..", mutant, "-overlay", overlay); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), withinThis)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestHistory$", "-test.v", "-lockproxy", mutant, "-profile", m.Profile,
		"-duration", withinThis.String(), "-round", "4s", "-seed", fmt.Sprint(max(*seed, 1)), "-out", dir)
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	text, err := cmd.CombinedOutput()
	took = time.Since(began)
	if err == nil || ctx.Err() != nil {
		return took, "", tail(string(text))
	}
	_, found, is := strings.Cut(string(text), "VIOLATION ")
	if !is {
		return took, "", tail(string(text))
	}
	oracle, _, _ = strings.Cut(found, ":")
	line, _, _ := strings.Cut(found, "\n")
	t.Logf("%s: found in %.1f s: %.300s", m.Name, took.Seconds(), line)
	return took, oracle, ""
}

func tail(s string) string { return s[max(0, len(s)-4000):] }
