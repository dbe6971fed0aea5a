package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// suite is one release's tests, unpacked, and the server to run them on.
type suite struct {
	dir    string // has tests/ and the licence
	name   string // as "redis 7.0.15"
	server string // program
	serves string // what the program says it is, as "Redis server 7.0.15"
	units  []string
}

// openSuite finds or fetches what s names.
func openSuite(ctx context.Context, s settings) (*suite, error) {
	if _, err := exec.LookPath("tclsh"); err != nil {
		return nil, errors.New("tclsh is not installed (Debian: apt-get install tcl)")
	}
	su, err := locate(ctx, s)
	if err != nil {
		return nil, err
	}
	if s.server != "" {
		su.server = s.server
	}
	if su.server == "" {
		su.server = "redis-server"
	}
	if su.server, err = exec.LookPath(su.server); err != nil {
		return nil, fmt.Errorf("no server to test: %w", err)
	}
	if su.server, err = filepath.Abs(su.server); err != nil {
		return nil, err
	}
	version, err := serverVersion(ctx, su.server)
	if err != nil {
		return nil, err
	}
	su.serves = version
	if s.resp == 3 && !su.mentions("--force-resp3") {
		return nil, fmt.Errorf("the suite %s cannot speak RESP3 (--force-resp3 came with Redis 7.2): name a newer one with -suite", su.name)
	}
	su.units, err = su.list(ctx)
	return su, err
}

func locate(ctx context.Context, s settings) (*suite, error) {
	if rest, ok := strings.CutPrefix(s.suite, "debian:"); ok {
		release, pkg, ok := strings.Cut(rest, "/")
		if !ok || release == "" || pkg == "" {
			return nil, fmt.Errorf("-suite %q: want debian:<suite>/<package>", s.suite)
		}
		return debianSuite(ctx, s.cache, release, pkg)
	}
	if url, tag, ok := strings.Cut(s.suite, "#"); ok {
		return gitSuite(ctx, s.cache, url, tag)
	}
	if s.suite != "" {
		dir, err := filepath.Abs(s.suite)
		return &suite{dir: dir, name: filepath.Base(dir)}, err
	}
	return installedSuite(ctx, s.cache)
}

// gitSuite clones one tag, the tests and the licence of it.
func gitSuite(ctx context.Context, cache, url, tag string) (*suite, error) {
	base := strings.TrimSuffix(filepath.Base(url), ".git")
	su := &suite{dir: filepath.Join(cache, base+"-"+tag), name: base + " " + tag}
	if su.present() {
		return su, nil
	}
	return su, unpackInto(su.dir, func(tmp string) (string, error) {
		work := filepath.Join(tmp, "clone")
		_, err := output(ctx, exec.Command("git", "clone", "-q", "--depth", "1", "--branch", tag, "--", url, work))
		if err != nil {
			return "", fmt.Errorf("cannot fetch %s at %s: %w", url, tag, err)
		}
		head, err := output(ctx, exec.Command("git", "-C", work, "rev-parse", "HEAD"))
		if err != nil {
			return "", err
		}
		note := fmt.Sprintf("%s %s %s\n", url, tag, strings.TrimSpace(head))
		return work, os.WriteFile(filepath.Join(work, "SOURCE"), []byte(note), 0o644)
	})
}

// unpackInto has fill unpack a source tree below a new folder and moves the
// tests, the licence and SOURCE, which says where it is from, to dir.
func unpackInto(dir string, fill func(tmp string) (string, error)) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	tree, err := fill(tmp)
	if err != nil {
		return err
	}
	chosen := filepath.Join(tmp, "chosen")
	if err := os.Mkdir(chosen, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if name == "tests" || name == "SOURCE" || strings.HasPrefix(name, "COPYING") || strings.HasPrefix(name, "LICENSE") {
			if err := os.Rename(filepath.Join(tree, name), filepath.Join(chosen, name)); err != nil {
				return err
			}
		}
	}
	if !(&suite{dir: chosen}).present() {
		return errors.New("the source has no tests/test_helper.tcl")
	}
	return os.Rename(chosen, dir)
}

func (su *suite) present() bool {
	_, err := os.Stat(filepath.Join(su.dir, "tests", "test_helper.tcl"))
	return err == nil
}

// mentions says whether the suite's main program knows a flag.
func (su *suite) mentions(flag string) bool {
	b, err := os.ReadFile(filepath.Join(su.dir, "tests", "test_helper.tcl"))
	return err == nil && bytes.Contains(b, []byte(flag))
}

// list asks the suite for its units.
func (su *suite) list(ctx context.Context) ([]string, error) {
	dir, err := os.MkdirTemp("", "lockproxy-tcl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := su.place(dir); err != nil {
		return nil, err
	}
	cmd := exec.Command("tclsh", "tests/test_helper.tcl", "--list-tests")
	cmd.Dir = dir
	out, err := output(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("the suite in %s: %w", su.dir, err)
	}
	units := strings.Fields(out)
	if len(units) == 0 {
		return nil, fmt.Errorf("the suite in %s lists no units", su.dir)
	}
	return units, nil
}

// place copies the suite into dir: it writes beside its tests, and wants the
// programs below src/.
func (su *suite) place(dir string) error {
	if err := os.CopyFS(filepath.Join(dir, "tests"), os.DirFS(filepath.Join(su.dir, "tests"))); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tests", "tmp"), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		return err
	}
	kind := strings.TrimSuffix(filepath.Base(su.server), "-server")
	for _, program := range []string{"server", "cli", "benchmark"} {
		from := filepath.Join(filepath.Dir(su.server), kind+"-"+program)
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, as := range []string{"redis", "valkey"} {
			if err := os.Symlink(from, filepath.Join(dir, "src", as+"-"+program)); err != nil {
				return err
			}
		}
	}
	return nil
}

// serverVersion is "Redis server 7.0.15" or what the program calls itself.
func serverVersion(ctx context.Context, program string) (string, error) {
	out, err := output(ctx, exec.Command(program, "--version"))
	if err != nil {
		return "", err
	}
	before, after, ok := strings.Cut(out, " v=")
	if !ok {
		return "", fmt.Errorf("%s --version says %q", program, out)
	}
	version, _, _ := strings.Cut(after, " ")
	return before + " " + version, nil
}

// output runs a command and returns what it prints; an error has the end of
// what it said.
func output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	c := exec.CommandContext(ctx, cmd.Args[0], cmd.Args[1:]...)
	c.Dir, c.Env = cmd.Dir, cmd.Env
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		text := strings.TrimSpace(said.String())
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, text[max(len(text)-600, 0):])
	}
	return out.String(), nil
}
