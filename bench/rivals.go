package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// rival is a program with locks of other libraries, in a folder of its own below bench/rivals.
type rival struct {
	name  string
	tools []string
	build [][]string // in a copy of the folder, once for each content of it
	run   []string   // there

	dir      string
	problem  error
	versions map[string]string // what it said of itself, by contestant
}

// rivals are built in the user's cache. {source} is the folder in the module, {dir} the copy.
func rivals() []*rival {
	return []*rival{
		{name: "go", tools: []string{"go"}, run: []string{"./rivals"},
			build: [][]string{{"go", "build", "-C", "{source}", "-o", "{dir}/rivals", "."}, {"go", "build", "-C", "{source}", "-o", "{dir}/draw", "./chart"}}},
		{name: "redisson", tools: []string{"java", "mvn"}, run: []string{"java", "-Dslf4j.internal.verbosity=ERROR", "-cp", "target/classes:target/dependency/*", "Main"},
			build: [][]string{{"mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "compile"}}},
		{name: "redis-py", tools: []string{"python3"}, run: []string{"venv/bin/python", "main.py"},
			build: [][]string{{"python3", "-m", "venv", "venv"}, {"venv/bin/pip", "install", "--quiet", "-r", "requirements.txt"}}},
		{name: "node-redlock", tools: []string{"node", "npm"}, run: []string{"node", "main.mjs"},
			build: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}}},
	}
}

// itself is this program as a contestant.
func itself() *rival {
	self, err := os.Executable()
	return &rival{run: []string{self, contestCommand}, problem: err, versions: map[string]string{}}
}

// buildRivals makes all of them ready, and says which cannot be had. That of "" is this program.
func buildRivals(ctx context.Context, rep *report) map[string]*rival {
	built := map[string]*rival{"": itself()}
	for _, r := range rivals() {
		r.versions = map[string]string{}
		progress("building bench/rivals: %s", r.name)
		if r.problem = r.ready(ctx); r.problem != nil {
			rep.missing(fmt.Sprintf("bench/rivals: %s", r.name), r.problem)
		}
		built[r.name] = r
	}
	return built
}

func (r *rival) ready(ctx context.Context) error {
	for _, tool := range r.tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("no %s here", tool)
		}
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockproxy/lockproxy").Output()
	if err != nil {
		return fmt.Errorf("where the module is: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "bench", "rivals")
	if r.name != "go" {
		source = filepath.Join(source, r.name)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	sum, err := checksum(os.DirFS(source))
	if err != nil {
		return err
	}
	r.dir = filepath.Join(cache, "lockproxy-bench", r.name+"-"+sum)
	built := filepath.Join(r.dir, ".built")
	if _, err := os.Stat(built); err == nil && r.name != "go" { // a Go program is made of more than the folder, and quickly built
		return nil
	}
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	if err := os.CopyFS(r.dir, os.DirFS(source)); err != nil {
		return err
	}
	for _, words := range r.build {
		words = slices.Clone(words)
		for i := range words {
			words[i] = strings.NewReplacer("{source}", source, "{dir}", r.dir).Replace(words[i])
		}
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = r.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %.300s", strings.Join(words, " "), err, strings.Join(strings.Fields(string(out)), " "))
		}
	}
	return os.WriteFile(built, nil, 0o644)
}

// checksum is a short name for the content of a folder.
func checksum(folder fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil))[:12], err
}

// draw is the program that draws charts, built beside the Go rivals.
func draw(ctx context.Context) (program string, err error) {
	i := slices.IndexFunc(rivals(), func(r *rival) bool { return r.name == "go" })
	r := rivals()[i]
	if err := r.ready(ctx); err != nil {
		return "", errors.Join(errors.New("no charts"), err)
	}
	return filepath.Join(r.dir, "draw"), nil
}
