package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
