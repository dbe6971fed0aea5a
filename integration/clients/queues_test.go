package clients

import (
	"context"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// queues are libraries of job queues, which use more of Redis than clients' own programs do: scripts, streams,
// commands that wait, INFO.
var queues = []struct {
	project harness.Project
	run     []string
	steps   []string
}{
	{
		project: harness.Project{
			Name: "bullmq", Folder: "bullmq", Tools: []string{"node", "npm"},
			Fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		},
		run: []string{"node", "main.mjs"},
		steps: []string{
			"job", "bulk", "delay", "priority", "retry", "progress", "once", "scheduler", "flow", "pause", "end",
		},
	},
	{
		project: harness.Project{
			Name: "celery", Folder: "celery", Tools: []string{"python3"},
			Fetch: [][]string{
				{"python3", "-m", "venv", "venv"}, {"venv/bin/pip", "install", "-q", "-r", "requirements.txt"},
			},
		},
		run: []string{"venv/bin/python", "-W", "ignore", "main.py"},
		steps: []string{
			"job", "countdown", "priority", "retry", "error", "many", "chords", "chains", "control", "purge",
		},
	},
}

// BullMQ and Celery work before the embedded store, and before Redis.
func TestInteropQueues(t *testing.T) {
	if !harness.Asked() {
		t.Skip("real libraries run by `make interop`, or with -run Interop")
	}
	for _, q := range queues {
		t.Run(q.project.Name, func(t *testing.T) {
			dir := q.project.Ready(t)
			for name, start := range map[string]func(t *testing.T) string{
				"embedded": func(*testing.T) string { return "" },
				"redis":    func(t *testing.T) string { return testredis.Start(t).URL() },
			} {
				t.Run(name, func(t *testing.T) {
					p := harness.StartProxy(t, start(t))
					ctx, cancel := context.WithTimeout(context.Background(), 8*patience)
					defer cancel()
					cmd := q.project.Command(ctx, dir, q.run)
					cmd.Env = append(cmd.Env, "LOCKPROXY_ADDR="+p.Addr())
					steps, err := obey(t, cmd, p.Addr(), upstream{})
					if err != nil || !slices.Equal(steps, q.steps) {
						t.Errorf("it passed %q of %q: %v", steps, q.steps, err)
					}
				})
			}
		})
	}
}
