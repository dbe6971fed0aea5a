package clients

import (
	"context"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The packages in clients/, each with tests of its own before a redis-server and a lockproxy that they start, kill and start again.
var packages = []struct {
	project harness.Project
	run     []string
}{
	{
		project: harness.Project{
			Name: "package-python", Folder: "../../clients/python", Tools: []string{"python3"},
			Fetch: [][]string{{"python3", "-m", "venv", "venv"}, {"venv/bin/pip", "install", "-q", "redis==8.1.0"}},
			Env:   []string{"PYTHONPATH=."},
		},
		run: []string{"venv/bin/python", "-W", "ignore::ResourceWarning", "-m", "unittest", "discover", "-s", "tests"},
	},
	{
		project: harness.Project{
			Name: "package-node", Folder: "../../clients/node", Tools: []string{"node", "npm"},
			Fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		},
		run: []string{"node", "--test", "test/lock.test.js"},
	},
	{
		project: harness.Project{Name: "package-go", Folder: "../../clients/go", Tools: []string{"go"}, Fetch: [][]string{{"go", "mod", "download"}}},
		run:     []string{"go", "test", "-vet=all", "-count=1", "./..."}, // vet knows what the language version of go.mod has
	},
	{
		project: harness.Project{
			Name: "package-java", Folder: "../../clients/java", Tools: []string{"java", "mvn"},
			// One test that needs no server brings all that the others need.
			Fetch: [][]string{{"mvn", "--quiet", "--batch-mode", "test", "-Dtest=SectionTest#optionsThatCannotBe"}},
		},
		run: []string{"mvn", "--quiet", "--batch-mode", "--offline", "test"},
	},
}

func TestInteropPackages(t *testing.T) {
	if !harness.Asked() {
		t.Skip("the packages' own tests run by `make interop`, or with -run Interop")
	}
	testredis.NeedsProcesses(t)
	for _, p := range packages {
		t.Run(p.project.Name, func(t *testing.T) {
			dir := p.project.Ready(t)
			ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
			defer cancel()
			cmd := p.project.Command(ctx, dir, p.run)
			cmd.Env = append(cmd.Env, "LOCKPROXY="+harness.Binary(t))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
