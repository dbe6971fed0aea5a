package node

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRightsAreDocumented: docs/OPERATIONS.md gives the service account the commands that the scripts have, and no others but what is
// asked beside them.
func TestRightsAreDocumented(t *testing.T) {
	files, err := filepath.Glob("../../../scripts/*.lua")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	used := map[string]bool{"+publish": true} // by tell.lua
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllSubmatch(text, -1) {
			used["+"+strings.ToLower(string(found[1]))] = true
		}
	}
	page, err := os.ReadFile("../../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("\nACL SETUSER lockproxy reset resetchannels on >secret ~app:\\* (.*)\n").FindSubmatch(page)
	if line == nil {
		t.Fatal("docs/OPERATIONS.md does not say what the service account needs")
	}
	beside := strings.Fields("~redisson_* ~lockproxy_* ~{* &redisson_* &lockproxy:* +eval +evalsha +wait +ping +info +select +command +config|get +subscribe +unsubscribe")
	for _, rule := range strings.Fields(string(line[1])) {
		command, _, _ := strings.Cut(rule, "|")
		if !used[command] && !slices.Contains(beside, rule) {
			t.Errorf("no script needs %s", rule)
		}
		delete(used, command)
	}
	delete(used, "+spublish") // of a cluster
	for rule := range used {
		t.Errorf("a script needs %s, which docs/OPERATIONS.md does not say", rule)
	}
}
