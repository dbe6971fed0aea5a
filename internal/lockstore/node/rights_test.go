package node

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the service account's rights in docs/OPERATIONS.md")

const (
	// asked is what the service account needs beside the commands of the scripts.
	asked = "~app:* ~redisson_* ~lockproxy_* ~{* &redisson_* &lockproxy:* +eval +evalsha +wait +ping +info +select +command +config|get " +
		"+publish +subscribe +unsubscribe"
	given = "\nACL SETUSER lockproxy reset resetchannels on >secret "
)

// subcommand is what the scripts use of a command that has several.
var subcommand = map[string]string{"memory": "memory|usage", "pubsub": "pubsub|numsub"}

// neededRights are the rules of the service account: those that are asked beside the scripts, and one for each command that scripts run.
func neededRights(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../../../scripts/*.lua")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	used := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllSubmatch(text, -1) {
			command := strings.ToLower(string(found[1]))
			if of, several := subcommand[command]; several {
				command = of
			}
			used["+"+command] = true
		}
	}
	delete(used, "+spublish") // of a cluster
	for _, rule := range strings.Fields(asked) {
		delete(used, rule)
	}
	return asked + " " + strings.Join(slices.Sorted(maps.Keys(used)), " ")
}

// TestRightsAreDocumented: docs/OPERATIONS.md gives the service account the commands that the scripts have, and no others but what is
// asked beside them.
func TestRightsAreDocumented(t *testing.T) {
	const path = "../../../docs/OPERATIONS.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), given)
	has, after, ended := strings.Cut(rest, "\n")
	if !found || !ended {
		t.Fatalf("%s does not say what the service account needs", path)
	}
	needs := neededRights(t)
	if *update {
		if err := os.WriteFile(path, []byte(before+given+needs+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if has != needs {
		t.Errorf("%s gives the service account\n%s\nand it needs (go test ./internal/lockstore/node -run Rights -update)\n%s", path, has, needs)
	}
}
