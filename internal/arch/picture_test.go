package arch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// byFloor is the whole of docs/imports.md: the packages of each floor.
func byFloor(rows []row) string {
	var b strings.Builder
	b.WriteString("# Who may import whom\n\n<!-- Written by: go test ./internal/arch -update -->\n\n" +
		"A package imports packages of lower floors only, and of these those that its row in\n" +
		"`internal/arch/table_test.go` names. Nobody imports what stands beside the floors.\n")
	floors := map[int][]row{}
	for _, r := range rows {
		floors[r.floor] = append(floors[r.floor], r)
	}
	for _, floor := range slices.Backward(slices.Sorted(maps.Keys(floors))) {
		name := fmt.Sprintf("Floor %d", floor)
		if floor == beside {
			name = "Beside the floors"
		}
		fmt.Fprintf(&b, "\n## %s\n\n", name)
		for _, r := range floors[floor] {
			fmt.Fprintf(&b, "- `%s`: %s\n", r.pkg, r.what)
		}
	}
	return b.String()
}

// drawn is a line of the picture in docs/ARCHITECTURE.md: a package, with its floor if it is the first there.
var drawn = regexp.MustCompile(`^ *(-?\d+)? +([a-z]+(?:/[a-z]+)*)  +\S`)

// misdrawn says where the picture under "The house" differs from the table. It need not have the packages of floor 0
// and those beside.
func misdrawn(page string, rows []row) (faults []string) {
	_, page, _ = strings.Cut(page, "\n## The house\n")
	_, page, _ = strings.Cut(page, "\n```text\n")
	page, _, _ = strings.Cut(page, "\n```\n")
	floor, seen := "", map[string]bool{}
	for line := range strings.Lines(page) {
		at := drawn.FindStringSubmatch(line)
		if at == nil {
			continue
		}
		if at[1] != "" {
			floor = at[1]
		}
		seen[at[2]] = true
		if r, known := rowOf(rows, at[2]); !known || strconv.Itoa(r.floor) != floor {
			faults = append(faults, fmt.Sprintf("%s is drawn on floor %s, in the table it is on %d", at[2], floor, r.floor))
		}
	}
	for _, r := range rows {
		if r.floor > 0 && r.floor < beside && !seen[r.pkg] {
			faults = append(faults, r.pkg+" is not drawn")
		}
	}
	return faults
}

// TestPictureInArchitecture: the picture that is drawn by hand has the floors of the table.
func TestPictureInArchitecture(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range misdrawn(string(page), table) {
		t.Error(fault)
	}
	rows := []row{{pkg: "a", floor: 2}, {pkg: "b/c", floor: 1}, {pkg: "d", floor: 1}, {pkg: "e", floor: 0}}
	faults := misdrawn("\n## The house\n\n```text\n 2   a     so\n     b/c   so\n\n```\n", rows)
	if want := []string{"b/c is drawn on floor 2, in the table it is on 1", "d is not drawn"}; !slices.Equal(faults, want) {
		t.Errorf("%q, want %q", faults, want)
	}
}
