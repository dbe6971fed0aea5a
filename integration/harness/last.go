package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Last is the version before this one.
type Last struct {
	Name   string // its tag, or its commit while there is no tag
	Commit string
	Binary string // its lockproxy
}

// LastVersion is the lockproxy of the newest tag v… behind this commit, or, as long as there is none, of the commit in
// .ci/upgrade-from. It is built once and kept in the user's cache. make test has no time for that, so it is built only if
// TESTS_UPGRADE is 1, which make upgrade says. A test that cannot have it is skipped, loudly.
func LastVersion(t testing.TB) (last Last) {
	t.Helper()
	testredis.NeedsProcesses(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	skip := func(why string) { t.Skipf("*** THE UPGRADE FROM THE LAST VERSION IS NOT TESTED: %s ***", why) }
	if last.Name, last.Commit, err = findLast(root); err != nil {
		skip(err.Error())
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cache, "lockproxy-test", "versions", last.Commit)
	last.Binary = filepath.Join(folder, "lockproxy")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	release, err := lockFile(filepath.Join(folder, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := os.Stat(last.Binary); err == nil {
		return last
	}
	if os.Getenv("TESTS_UPGRADE") != "1" {
		skip(last.Name + " is not built yet: make upgrade builds it, in a minute")
	}
	source := filepath.Join(t.TempDir(), "source")
	for _, words := range [][]string{
		git(root, "clone", "--quiet", "--shared", "--no-checkout", root, source), git(source, "checkout", "--quiet", "--detach", last.Commit),
	} {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
	}
	if out, err := goCommand(source, "mod", "download").CombinedOutput(); err != nil {
		skip(fmt.Sprintf("its modules cannot be had: %v\n%s", err, out))
	}
	if out, err := goCommand(source, "build", "-buildvcs=true", "-o", filepath.Join(folder, "new"), "./cmd/lockproxy").CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", last.Name, err, out)
	}
	if err := os.Rename(filepath.Join(folder, "new"), last.Binary); err != nil { // at once: it is whole, or it is not there
		t.Fatal(err)
	}
	return last
}

// git is a command of git in a folder, which may be somebody else's.
func git(folder string, words ...string) []string {
	return append([]string{"git", "-c", "safe.directory=*", "-C", folder}, words...)
}

func goCommand(folder string, words ...string) *exec.Cmd {
	cmd := exec.Command("go", words...)
	cmd.Dir = folder
	return cmd
}

// findLast finds the last version's name and commit. A commit that is tagged itself is not the version before it.
func findLast(root string) (name, commit string, err error) {
	ask := func(words ...string) string {
		words = git(root, words...)
		out, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	if name = ask("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"); name == "" {
		text, err := os.ReadFile(filepath.Join(root, ".ci", "upgrade-from"))
		if err != nil {
			return "", "", err
		}
		name = strings.TrimSpace(string(text))
	}
	if commit = ask("rev-parse", "--verify", "--quiet", name+"^{commit}"); commit == "" {
		return "", "", fmt.Errorf("%s is not in this clone, which may be a shallow one, or none", name)
	}
	return name, commit, nil
}
