package harness

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ServicePermissions is what docs/OPERATIONS.md says that the service account needs, with the row of its table that begins so; "" = none.
func ServicePermissions(t *testing.T, row string) []any {
	t.Helper()
	page, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("\n```text\nACL SETUSER lockproxy (reset resetchannels on >secret ~app:.*)\n```\n").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/OPERATIONS.md does not say what the service account needs")
	}
	rules := strings.Fields(string(found[1]))
	if row != "" {
		more := regexp.MustCompile("\n\\| " + row + " \\| ([^\n]*) \\|\n").FindSubmatch(page)
		if more == nil {
			t.Fatal("docs/OPERATIONS.md has no row for", row)
		}
		for _, part := range regexp.MustCompile("(also|without) `([^`]*)`").FindAllSubmatch(more[1], -1) {
			these := strings.Fields(strings.ReplaceAll(string(part[2]), `\|`, "|"))
			if string(part[1]) == "also" {
				rules = append(rules, these...)
			} else {
				rules = slices.DeleteFunc(rules, func(rule string) bool { return slices.Contains(these, rule) })
			}
		}
	}
	set := []any{"ACL", "SETUSER", "service"}
	for _, rule := range rules {
		set = append(set, rule)
	}
	return set
}
