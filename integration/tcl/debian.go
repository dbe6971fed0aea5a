package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// apt is a private state of apt below one folder: the machine's own mirrors and
// keys, but package indexes of ours, so that root is not needed and the
// machine's lists stay as they are.
type apt struct {
	dir   string
	flags []string
}

// newApt asks the mirrors that the machine is set up with. release "" keeps the
// machine's releases; another one is looked for on the same mirrors.
func newApt(ctx context.Context, dir, release string) (*apt, error) {
	for _, program := range []string{"apt-get", "apt-cache", "apt-config", "dpkg-source"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("the suite is a Debian source package and %s is not here (Debian: apt-get install dpkg-dev): name another with -suite", program)
		}
	}
	a := &apt{dir: dir}
	for _, d := range []string{"lists/partial", "cache/archives/partial", "sources", "files"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "status"), nil, 0o644); err != nil {
		return nil, err
	}
	for _, o := range []string{
		"Dir::State::lists=" + filepath.Join(dir, "lists"),
		"Dir::State::status=" + filepath.Join(dir, "status"),
		"Dir::Cache=" + filepath.Join(dir, "cache"),
		"Dir::Etc::sourcelist=/dev/null",
		"Dir::Etc::sourceparts=" + filepath.Join(dir, "sources"),
		"APT::Sandbox::User=",
	} {
		a.flags = append(a.flags, "-o", o)
	}
	n, err := a.copySources(ctx, release)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("apt has no mirrors for it in its configuration")
	}
	// A mirror that is away does not matter when another has the package.
	if _, err := a.run(ctx, "apt-get", "-q", "update"); err != nil {
		progress("tcl: %v", err)
	}
	return a, nil
}

// copySources writes the machine's source lists with source packages added.
func (a *apt) copySources(ctx context.Context, release string) (int, error) {
	codename := ""
	if release != "" {
		var err error
		if codename, err = osCodename(); err != nil {
			return 0, err
		}
	}
	shell, err := output(ctx, exec.Command("apt-config", "shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"))
	if err != nil {
		return 0, err
	}
	var files []string
	for _, m := range regexp.MustCompile(`(?m)^(LIST|PARTS)='(.*)'$`).FindAllStringSubmatch(shell, -1) {
		if m[1] == "LIST" {
			files = append(files, m[2])
			continue
		}
		for _, ext := range []string{"*.list", "*.sources"} {
			found, err := filepath.Glob(filepath.Join(m[2], ext))
			if err != nil {
				return 0, err
			}
			files = append(files, found...)
		}
	}
	n := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the single list is missing on newer systems
		}
		text := ""
		if strings.HasSuffix(file, ".sources") {
			text = sourceStanzas(string(b), codename, release)
		} else {
			text = sourceLines(string(b), codename, release)
		}
		if text == "" {
			continue
		}
		n++
		if err := os.WriteFile(filepath.Join(a.dir, "sources", filepath.Base(file)), []byte(text), 0o644); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// sourceStanzas turns a deb822 list into one with binary and source packages; with
// a release, only stanzas that have the codename are kept, for that release.
func sourceStanzas(text, codename, release string) string {
	var kept []string
	for _, stanza := range regexp.MustCompile(`\n\s*\n`).Split(text, -1) {
		if !regexp.MustCompile(`(?mi)^Types:.*\bdeb\b`).MatchString(stanza) || regexp.MustCompile(`(?mi)^Enabled:\s*no`).MatchString(stanza) {
			continue
		}
		suites := regexp.MustCompile(`(?mi)^Suites:(.*)$`)
		if release != "" {
			m := suites.FindStringSubmatch(stanza)
			if m == nil || !hasWord(m[1], codename) {
				continue
			}
			stanza = suites.ReplaceAllLiteralString(stanza, "Suites: "+release)
		}
		kept = append(kept, regexp.MustCompile(`(?mi)^Types:.*$`).ReplaceAllLiteralString(stanza, "Types: deb deb-src"))
	}
	return strings.Join(kept, "\n\n")
}

// sourceLines does the same with one-line lists.
func sourceLines(text, codename, release string) string {
	line := regexp.MustCompile(`^deb\s+((?:\[.*?\]\s+)?\S+)\s+(\S+)(.*)$`)
	var kept []string
	scan := bufio.NewScanner(strings.NewReader(text))
	for scan.Scan() {
		m := line.FindStringSubmatch(strings.TrimSpace(scan.Text()))
		if m == nil || release != "" && m[2] != codename {
			continue
		}
		if release != "" {
			m[2] = release
		}
		for _, kind := range []string{"deb", "deb-src"} {
			kept = append(kept, kind+" "+m[1]+" "+m[2]+m[3])
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return strings.Join(kept, "\n") + "\n"
}

func hasWord(text, word string) bool {
	for _, w := range strings.Fields(text) {
		if w == word {
			return true
		}
	}
	return false
}

func osCodename() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^VERSION_CODENAME="?([a-z]+)"?$`).FindSubmatch(b)
	if m == nil {
		return "", errors.New("/etc/os-release has no VERSION_CODENAME")
	}
	return string(m[1]), nil
}

func (a *apt) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.Command(program, append(append([]string{}, a.flags...), args...)...)
	cmd.Dir = filepath.Join(a.dir, "files")
	return output(ctx, cmd)
}

// versions are the versions of a source package on the mirrors, as "5:7.0.15-1".
func (a *apt) versions(ctx context.Context, pkg string) ([]string, error) {
	text, err := a.run(ctx, "apt-cache", "showsrc", "--only-source", pkg)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^Version: (\S+)$`).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found, nil
}

// upstream is the part of a Debian version that the authors of the software
// gave it: "7.0.15" of "5:7.0.15-1~deb12u10".
func upstream(version string) string {
	if _, after, ok := strings.Cut(version, ":"); ok {
		version = after
	}
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		version = version[:i]
	}
	plain, _, _ := strings.Cut(version, "+")
	return plain
}

// source downloads a source package, compares every file of it with the SHA-256
// in the signed package index, and returns the path of its .dsc and that file's
// SHA-256, which stands for all the others.
func (a *apt) source(ctx context.Context, pkg, version string) (dsc, sum string, err error) {
	spec := pkg + "=" + version
	uris, err := a.run(ctx, "apt-get", "-q", "source", "--only-source", "--print-uris", spec)
	if err != nil {
		return "", "", err
	}
	if _, err := a.run(ctx, "apt-get", "-q", "source", "--only-source", "--download-only", spec); err != nil {
		return "", "", err
	}
	for _, m := range regexp.MustCompile(`(?m)^'\S+' (\S+) \d+ (\S+)$`).FindAllStringSubmatch(uris, -1) {
		file := filepath.Join(a.dir, "files", m[1])
		b, err := os.ReadFile(file)
		if err != nil {
			return "", "", err
		}
		if have := fmt.Sprintf("SHA256:%x", sha256.Sum256(b)); have != m[2] {
			return "", "", fmt.Errorf("%s: %s, the index says %s", m[1], have, m[2])
		}
		if strings.HasSuffix(file, ".dsc") {
			dsc, sum = file, m[2]
		}
	}
	if dsc == "" {
		return "", "", fmt.Errorf("the index names no .dsc for %s", spec)
	}
	return dsc, sum, nil
}
