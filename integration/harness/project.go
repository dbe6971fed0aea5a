package harness

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Project is a folder with a program in another language: how its packages are had, and how it is built.
type Project struct {
	Name    string     // of its folder in the cache
	Folder  string     // its sources
	Beside  []string   // more folders, which are put into it under their own names
	Tools   []string   // commands of the toolchain
	Present []string   // says by its exit code that Fetch has nothing to do; nil: Fetch always runs
	Fetch   [][]string // gets its packages, in a copy of the folder outside the repository; without them it is not tested
	Build   [][]string
	Env     []string // more environment: "NAME=path below the folder"
}

// Ready copies the folder to the cache, installs its packages and builds it there. Without the toolchain or the packages
// the test is skipped, loudly.
func (p Project) Ready(t testing.TB) (dir string) {
	t.Helper()
	for _, tool := range p.Tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("*** %s NOT TESTED: no %s here ***", p.Name, tool)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(cache, "lockproxy-interop", p.Name)
	copyFolder(t, p.Folder, dir)
	for _, folder := range p.Beside {
		copyFolder(t, folder, filepath.Join(dir, filepath.Base(folder)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*Patience)
	defer cancel()
	if p.Present == nil || p.Command(ctx, dir, p.Present).Run() != nil {
		for _, words := range p.Fetch {
			if out, err := p.Command(ctx, dir, words).CombinedOutput(); err != nil {
				t.Skipf("*** %s NOT TESTED: %s: %v\n%s ***", p.Name, strings.Join(words, " "), err, out)
			}
		}
	}
	for _, words := range p.Build {
		if out, err := p.Command(ctx, dir, words).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
	}
	return dir
}

// Command is words as run in dir; a program that has been built there is found, too.
func (p Project) Command(ctx context.Context, dir string, words []string) *exec.Cmd {
	name := words[0]
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(ctx, name, words[1:]...)
	cmd.Dir, cmd.Env = dir, os.Environ()
	for _, pair := range p.Env {
		name, path, _ := strings.Cut(pair, "=")
		cmd.Env = append(cmd.Env, name+"="+filepath.Join(dir, path))
	}
	return cmd
}

// Maven is how the packages of a Maven project are had and its program is built and run; args go to Maven.
func Maven(args ...string) (fetch, build [][]string, run []string) {
	mvn := append([]string{"mvn", "--quiet", "--batch-mode"}, args...)
	with := func(goal string) [][]string { return [][]string{append(mvn[:len(mvn):len(mvn)], goal)} }
	return with("dependency:copy-dependencies"), with("compile"),
		[]string{"java", "-cp", "target/classes:target/dependency/*", "Main"}
}

// copyFolder copies the files of a folder to dir. One that has not changed keeps its time, so that builds are short.
func copyFolder(t testing.TB, from, dir string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, below)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if old, err := os.ReadFile(target); err == nil && string(old) == string(text) {
			return nil
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
