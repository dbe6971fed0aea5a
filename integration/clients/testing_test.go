package clients

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// block is one of docs/TESTING.md: its language, and its text.
type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// testingBlocks are the blocks of docs/TESTING.md.
func testingBlocks(t *testing.T) (all []block) {
	t.Helper()
	page, err := os.ReadFile("../../docs/TESTING.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range fence.FindAllStringSubmatch(string(page), -1) {
		all = append(all, block{at[1], at[2]})
	}
	return all
}

// blockWith is the one block of a language that has a text in it.
func blockWith(t *testing.T, language, text string) string {
	t.Helper()
	var found []string
	for _, b := range testingBlocks(t) {
		if b.language == language && strings.Contains(b.text, text) {
			found = append(found, b.text)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of %s have %q", len(found), language, text)
	}
	return found[0]
}

var fileName = regexp.MustCompile(`\A(?:#|//) ([A-Za-z_.]+)\n`)

// writeFiles writes the blocks of a language into a folder, each as the file that its first line names.
func writeFiles(t *testing.T, language, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, b := range testingBlocks(t) {
		name := fileName.FindStringSubmatch(b.text)
		if b.language != language || name == nil {
			continue
		}
		files++
		if err := os.WriteFile(filepath.Join(dir, name[1]), []byte(b.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if files == 0 {
		t.Fatalf("the page has no files in %s", language)
	}
}

// asReader runs a command as a reader of the page does, who has lockproxy in the path.
func asReader(t *testing.T, dir string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(harness.Binary(t))+":"+os.Getenv("PATH"))
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s%s", words, err, &out, &complaints)
	}
	return out.String()
}

// The tests in Go of docs/TESTING.md pass.
func TestTestingPageInGo(t *testing.T) {
	t.Parallel()
	testredis.NeedsProcesses(t)
	dir := t.TempDir()
	writeFiles(t, "go", dir)
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	versions, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod := regexp.MustCompile(`(?m)^module .*$`).ReplaceAll(versions, []byte("module orders"))
	mod = regexp.MustCompile(`(?m)^tool .*$`).ReplaceAll(mod, nil)
	for name, text := range map[string][]byte{"go.mod": mod, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := asReader(t, dir, "go", "test", "-vet=off", "-count=1", "-v", "."); !strings.Contains(out, "--- PASS: TestOneOwnerAtATime") {
		t.Errorf("it says %s", out)
	}
}

// The script of docs/TESTING.md prints what the page says.
func TestTestingPageInAShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, "bash", dir)
	if out := asReader(t, dir, "bash", "-eu", "test.sh"); out != "OK\ndeployed\n" {
		t.Errorf("it prints %q", out)
	}
}

// What docs/TESTING.md has for containers, and the command that it begins with, serve clients.
func TestTestingPageServes(t *testing.T) {
	t.Parallel()
	serves := func(env []string, args ...string) {
		t.Helper()
		cmd := exec.Command(harness.Binary(t), append(args, "--attached", "yes")...)
		cmd.Env = append(os.Environ(), env...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 100)
		n, err := out.Read(line)
		if err != nil {
			t.Fatalf("%q %q: %v", env, args, err)
		}
		_, port, err := net.SplitHostPort(strings.TrimSpace(string(line[:n])))
		if err != nil {
			t.Fatal(err)
		}
		harness.Expect(t, harness.Dial(t, "127.0.0.1:"+port), "+OK\r\n", "LOCK", "l")
		in.Close()
		_ = cmd.Wait() // somebody holds a lock
	}
	command := strings.Fields(blockWith(t, "sh", "lockproxy --attached"))
	serves(nil, command[1:]...)
	free := strings.NewReplacer(":6380", ":0")
	container := blockWith(t, "sh", "docker run")
	_, args, found := strings.Cut(container, " lockproxy ")
	if !found {
		t.Fatalf("docker run has no image: %q", container)
	}
	serves(nil, strings.Fields(free.Replace(args))...)
	var env []string
	for _, pair := range regexp.MustCompile(`(LOCKPROXY_[A-Z_]+): "(.*)"`).FindAllStringSubmatch(blockWith(t, "yaml", "services:"), -1) {
		env = append(env, pair[1]+"="+free.Replace(pair[2]))
	}
	if len(env) != 2 {
		t.Errorf("the service container has %q", env)
	}
	serves(env)
}

// The tests in other languages of docs/TESTING.md pass.
func TestInteropTestingPage(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real toolchains run by `make interop`, or with -run Interop")
	}
	for _, c := range []struct {
		language, into string
		project        harness.Project
		run            []string
		says           string
	}{
		{
			language: "python", run: []string{"venv/bin/python", "-m", "pytest", "-q"}, says: "1 passed",
			project: harness.Project{
				Name: "testing-pytest", Folder: "testing/pytest", Tools: []string{"python3"},
				Fetch: [][]string{
					{"python3", "-m", "venv", "venv"}, {"venv/bin/pip", "install", "-q", "-r", "requirements.txt"},
				},
			},
		},
		{
			language: "js", run: []string{"node_modules/.bin/vitest", "run"}, says: "1 passed",
			project: harness.Project{
				Name: "testing-vitest", Folder: "testing/vitest", Tools: []string{"node", "npm"},
				Fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
			},
		},
		{
			language: "java", into: "src/test/java", run: []string{"mvn", "--batch-mode", "test"}, says: "Tests run: 1, Failures: 0",
			project: harness.Project{
				Name: "testing-junit", Folder: "testing/junit", Tools: []string{"java", "mvn"},
				Fetch: [][]string{{"mvn", "--quiet", "--batch-mode", "dependency:go-offline"}},
			},
		},
	} {
		t.Run(c.language, func(t *testing.T) {
			dir := c.project.Ready(t)
			writeFiles(t, c.language, filepath.Join(dir, c.into))
			if strings.Contains(c.run[0], "/") {
				c.run[0] = filepath.Join(dir, c.run[0])
			}
			if out := asReader(t, dir, c.run...); !strings.Contains(out, c.says) {
				t.Errorf("it says %s", out)
			}
		})
	}
}
