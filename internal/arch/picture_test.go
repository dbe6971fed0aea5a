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

// picture is the whole of docs/imports.md: the imports there are, by floors, and
// the table of those that may be.
func picture(files []source, rows []row) string {
	var b strings.Builder
	b.WriteString("# Who imports whom\n\n<!-- Written by: go test ./internal/arch -update -->\n\n" +
		"Imports run downwards only. The arrows are those of the code, tests aside; `internal/telemetry`, where anyone\n" +
		"may count, is drawn without its arrows.\n\n```mermaid\nflowchart TD\n")
	byFloor := make(map[int][]string)
	for _, pkg := range packages(files) {
		if r, known := rowOf(rows, pkg); known {
			byFloor[r.floor] = append(byFloor[r.floor], pkg)
		}
	}
	for _, floor := range slices.Backward(slices.Sorted(maps.Keys(byFloor))) {
		fmt.Fprintf(&b, "  subgraph floor%d[%q]\n", floor, floorName(floor))
		for _, pkg := range byFloor[floor] {
			fmt.Fprintf(&b, "    %s[%q]\n", node(pkg), pkg)
		}
		b.WriteString("  end\n")
	}
	all := arrows(files)
	for _, from := range slices.Sorted(maps.Keys(all)) {
		for _, to := range all[from] {
			if to != "internal/telemetry" {
				fmt.Fprintf(&b, "  %s --> %s\n", node(from), node(to))
			}
		}
	}
	b.WriteString("```\n\nWhat may be imported, as `internal/arch` enforces it:\n\n| Floor | Package | What lives there | May import |\n|---|---|---|---|\n")
	for _, r := range rows {
		may := "–"
		if len(r.may) > 0 {
			may = strings.Join(r.may, ", ")
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", floorName(r.floor), r.pkg, r.what, may)
	}
	return b.String()
}

func floorName(floor int) string {
	if floor == beside {
		return "beside"
	}
	return fmt.Sprint(floor)
}

func node(pkg string) string { return strings.ReplaceAll(pkg, "/", "_") }

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
