package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inGit runs a command of git in a folder and returns what it says.
func inGit(t *testing.T, folder string, words ...string) string {
	t.Helper()
	words = append(git(folder, "-c", "user.name=n", "-c", "user.email=e@example.org"), words...)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The last version is the newest tag behind the commit; without one it is what the file names; and where neither is, that is said.
func TestFindLast(t *testing.T) {
	root := t.TempDir()
	last := func(folder, want string) {
		t.Helper()
		name, commit, err := findLast(folder)
		if err != nil && !strings.Contains(want, "not in this clone") || name == "" && err == nil || !strings.Contains(name+" "+commit+" "+errorText(err), want) {
			t.Errorf("%q %q %v, want %q", name, commit, err, want)
		}
	}
	inGit(t, root, "init", "--quiet")
	var commits []string
	commit := func() {
		t.Helper()
		inGit(t, root, "commit", "--quiet", "--allow-empty", "-m", "m")
		commits = append(commits, inGit(t, root, "rev-parse", "HEAD"))
	}
	commit()
	commit()
	if err := os.Mkdir(filepath.Join(root, ".ci"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ".ci", "upgrade-from"), []byte(commits[0]+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	last(root, commits[0]+" "+commits[0])
	inGit(t, root, "tag", "v1.0.0")
	last(root, commits[0]) // it is this commit itself
	commit()
	inGit(t, root, "tag", "other")
	last(root, "v1.0.0 "+commits[1])
	inGit(t, root, "tag", "-a", "-m", "m", "v1.1.0")
	last(root, "v1.0.0 "+commits[1])
	commit()
	last(root, "v1.1.0 "+commits[2])
	shallow := filepath.Join(t.TempDir(), "shallow")
	inGit(t, root, "clone", "--quiet", "--depth", "1", "--no-tags", "file://"+root, shallow)
	if err := os.CopyFS(filepath.Join(shallow, ".ci"), os.DirFS(filepath.Join(root, ".ci"))); err != nil {
		t.Fatal(err)
	}
	last(shallow, "not in this clone")
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
