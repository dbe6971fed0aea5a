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

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// testingPage is docs/TESTING.md.
func testingPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/TESTING.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// blockWith is the one block of docs/TESTING.md in a language that has a text in it.
func blockWith(t *testing.T, language, text string) string {
	t.Helper()
	var found []string
	for _, at := range fence.FindAllStringSubmatch(testingPage(t), -1) {
		if at[1] == language && strings.Contains(at[2], text) {
			found = append(found, at[2])
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of %s have %q", len(found), language, text)
	}
	return found[0]
}

// linkedProject is the folder of a project that docs/TESTING.md links to.
func linkedProject(t *testing.T, name string) string {
	t.Helper()
	if !strings.Contains(testingPage(t), "(../integration/clients/testing/"+name+")") {
		t.Errorf("docs/TESTING.md does not link to %s", name)
	}
	return filepath.Join("testing", name)
}

// asReader runs a command as a reader of the page does, who has lockproxy in the path.
func asReader(t *testing.T, dir string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(harness.Binary(t))+":"+os.Getenv("PATH"), "GOFLAGS=", "GOWORK=off")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s%s", words, err, &out, &complaints)
	}
	return out.String()
}

// The tests in Go that docs/TESTING.md links to pass.
func TestTestingPageInGo(t *testing.T) {
	t.Parallel()
	testredis.NeedsProcesses(t)
	out := asReader(t, linkedProject(t, "go"), "go", "test", "-vet=off", "-count=1", "-v", ".")
	if !strings.Contains(out, "--- PASS: TestOneOwnerAtATime") {
		t.Errorf("it says %s", out)
	}
}

// The script of docs/TESTING.md prints what the page says.
func TestTestingPageInAShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test.sh"), []byte(blockWith(t, "bash", "coproc")), 0o644); err != nil {
		t.Fatal(err)
	}
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

// The tests in other languages that docs/TESTING.md links to pass.
func TestInteropTestingPage(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real toolchains run by `make interop`, or with -run Interop")
	}
	for _, c := range []struct {
		project harness.Project // without its name and its folder
		name    string
		run     []string
		says    string
	}{
		{
			name: "pytest", run: []string{"venv/bin/python", "-m", "pytest", "-q"}, says: "1 passed",
			project: harness.Project{
				Tools: []string{"python3"},
				Fetch: [][]string{
					{"python3", "-m", "venv", "venv"}, {"venv/bin/pip", "install", "-q", "-r", "requirements.txt"},
				},
			},
		},
		{
			name: "vitest", run: []string{"node_modules/.bin/vitest", "run"}, says: "1 passed",
			project: harness.Project{
				Tools: []string{"node", "npm"},
				Fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
			},
		},
		{
			name: "junit", run: []string{"mvn", "--batch-mode", "test"}, says: "Tests run: 1, Failures: 0",
			project: harness.Project{
				Tools: []string{"java", "mvn"},
				Fetch: [][]string{{"mvn", "--quiet", "--batch-mode", "dependency:go-offline"}},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.project.Name, c.project.Folder = "testing-"+c.name, linkedProject(t, c.name)
			dir := c.project.Ready(t)
			if strings.Contains(c.run[0], "/") {
				c.run[0] = filepath.Join(dir, c.run[0])
			}
			if out := asReader(t, dir, c.run...); !strings.Contains(out, c.says) {
				t.Errorf("it says %s", out)
			}
		})
	}
}
