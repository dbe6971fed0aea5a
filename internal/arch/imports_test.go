package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
