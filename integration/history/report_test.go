package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockproxy/lockproxy/internal/history"
)

// report writes what was recorded and what is wrong with it into a new folder, and tells about it.
func (r *round) report(wrong []history.Violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile %s, seed %d: %d violations\n", r.p.name, r.seed, len(wrong))
	dir, err := os.MkdirTemp(*out, fmt.Sprintf("lockproxy-history-%s-%d-", r.p.name, r.seed))
	if err == nil {
		err = history.WriteFile(filepath.Join(dir, "history.jsonl"), r.History(), r.Faults())
	}
	b.WriteString(history.Tell(wrong, dir))
	if err != nil {
		fmt.Fprintln(&b, "the history could not be written:", err)
	} else {
		fmt.Fprintf(&b, "history: %s\n", dir)
	}
	if err == nil {
		_ = os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(b.String()), 0o644) // it is printed, too
	}
	fmt.Fprintf(&b, "again: go test ./integration/history -run History -count=1 -v -args -profile %s -seed %d -duration %v", r.p.name, r.seed, *length)
	return b.String()
}
