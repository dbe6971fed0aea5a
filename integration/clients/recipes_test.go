package clients

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// recipe is how a program of docs/RECIPES.md is tried. Those for a shell and for Go are in integration/locks.
type recipe struct {
	name  string   // of its file, or the heading that it stands under
	needs []string // what its packages are had by, beside those of the language
	try   func(r running)
}

var recipes = []recipe{
	{"celery_bill.py", []string{"celery==5.7.0", "packaging==25.0"}, drivenBy("celery_recipe.py")},
	{"stock.py", nil, drivenBy("fence_recipe.py")},
	{"django_pay.py", []string{"Django==5.2.19"}, drivenBy("django_recipe.py")},
	{"At most so many at once", nil, drivenBy("limit_recipe.py")},
	{"fastapi_pay.py", []string{"fastapi==0.165.0", "httpx==0.28.1"}, drivenBy("fastapi_recipe.py")},
	{"orders.py", nil, pythonWaitsForJava},
	{"Orders.java", nil, javaWaitsForPython},
	{"export.mjs", nil, told},
	{"express_pay.mjs", []string{"express@5.3.0"}, express},
}

func TestInteropRecipes(t *testing.T) {
	if !harness.Asked() {
		t.Skip("the recipes run by `make interop`, or with -run Interop")
	}
	testredis.NeedsProcesses(t)
	blocks := harness.Blocks(t, "python", "js", "java")
	if len(blocks) != len(recipes) {
		t.Errorf("%d recipes, and tests for %d", len(blocks), len(recipes))
	}
	ready := map[string]bool{} // languages whose packages are there
	for _, b := range blocks {
		t.Run(b.Name, func(t *testing.T) {
			for _, r := range recipes {
				if r.name == b.Name {
					tools := r.project(b.Language, !ready[b.Language]).Ready(t)
					ready[b.Language] = true
					t.Parallel() // when the packages of all recipes are there
					r.try(newRunning(t, b, tools))
					return
				}
			}
			t.Error("this recipe has no test")
		})
	}
}

// running is a recipe as a file in a folder of its own, before servers of its own.
type running struct {
	*testing.T
	redis *testredis.Server
	proxy *harness.Proxy
	dir   string
	start []string // the command that runs it; arguments may follow
	tools string   // where the packages are
}

func newRunning(t *testing.T, b harness.Block, tools string) running {
	t.Helper()
	s := testredis.Start(t)
	w := running{T: t, redis: s, proxy: harness.StartProxy(t, s.URL()), dir: t.TempDir(), tools: tools}
	var file string
	switch b.Language {
	case "python":
		file, w.start = "recipe.py", []string{filepath.Join(tools, "venv/bin/python")}
	case "js":
		file, w.start = "recipe.mjs", []string{"node"}
		if err := os.Symlink(filepath.Join(tools, "node_modules"), filepath.Join(w.dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
	case "java":
		file, w.start = "Orders.java", []string{"java", "-cp", filepath.Join(tools, "target/dependency/*")}
	}
	code := b.At(t, w.proxy.Addr(), s.Addr())
	if err := os.WriteFile(filepath.Join(w.dir, file), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	w.start = append(w.start, file)
	return w
}

// project is where the packages of its language are, and those that it needs besides. A framework that cannot be had leaves its
// recipe untested, loudly, and no other.
func (r recipe) project(language string, first bool) harness.Project {
	p, add := harness.Project{}, []string{}
	switch language {
	case "python":
		add = []string{"venv/bin/pip", "install", "-q"}
		p = harness.Project{
			Name: "recipes-python", Folder: "recipes/python", Beside: []string{"../../clients/python"}, Tools: []string{"python3"},
			Fetch: [][]string{{"python3", "-m", "venv", "venv"}, append(add[:3:3], "-r", "requirements.txt"), append(add[:3:3], "./python")},
		}
	case "js":
		add = []string{"npm", "install", "--no-save", "--no-audit", "--no-fund"}
		p = harness.Project{
			Name: "recipes-node", Folder: "recipes/node", Beside: []string{"../../clients/node"}, Tools: []string{"node", "npm"},
			Fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		}
	case "java":
		p = harness.Project{Name: "redisson-4.7.0", Folder: "../redisson/java", Tools: []string{"java", "mvn"}}
		p.Fetch, p.Build, _ = harness.Maven("-Dredisson=4.7.0")
	}
	if !first {
		p.Fetch = nil
	}
	if len(r.needs) > 0 {
		p.Fetch = append(p.Fetch, append(slices.Clip(add), r.needs...))
	}
	return p
}

// command runs words in the recipe's folder. It is killed at the end of the test.
func (r running) command(words ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	r.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+r.dir)
	return cmd
}

// drivenBy has a Python program use the recipe as its module.
func drivenBy(driver string) func(r running) {
	return func(r running) {
		out, err := r.command(r.start[0], "-W", "ignore::ResourceWarning", filepath.Join(r.tools, driver)).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "passed\n") {
			r.Fatalf("%v\n%s", err, out)
		}
	}
}

// javaWaitsForPython runs the Java program while a lock taken through the proxy is held, which is what the Python program does.
func javaWaitsForPython(r running) { r.waits("java") }

// pythonWaitsForJava runs the Python program while the lock is held as Redisson holds it.
func pythonWaitsForJava(r running) { r.waits("python") }

// waits has the recipe wait for the lock that another holds, run its command with the lock, and give it back.
func (r running) waits(who string) {
	w := harness.Dial(r, r.proxy.Addr())
	harness.Expect(r, w, "+OK\r\n", "LOCK", "orders")
	look := fmt.Sprintf("redis-cli -p %d LOCK orders; redis-cli -p %d HLEN orders", r.proxy.Port(), r.redis.Port())
	cmd := r.command(append(r.start, "sh", "-c", look)...)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	harness.Eventually(r, who+" waits", func() bool {
		if who == "java" { // it has subscribed to the lock's channel
			got, _ := r.redis.Do(r, "PUBSUB", "NUMSUB", "redisson_lock__channel:{orders}").([]any)
			return len(got) == 2 && got[1] == int64(1)
		}
		return harness.WaitingHere(r, w, "orders") == 1
	})
	harness.Expect(r, w, ":1\r\n", "UNLOCK", "orders")
	if err := cmd.Wait(); err != nil || out.String() != "\n1\n" { // nil, and one holder
		r.Errorf("%s: %v, the others saw %q", who, err, out)
	}
	harness.Expect(r, w, "+OK\r\n", "LOCK", "orders")
}

// told: the lock is freed by force while a request is under way. It is aborted, and none follows.
func told(r running) {
	var asked atomic.Int64
	aborted := make(chan struct{})
	operator := harness.Dial(r, r.proxy.Addr())
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked.Add(1) == 2 {
			harness.Expect(r, operator, ":1\r\n", "UNLOCK", "export", "FORCE")
			<-q.Context().Done()
			close(aborted)
		}
	}))
	defer web.Close()
	out, err := r.command(append(r.start, web.URL+"/1", web.URL+"/2", web.URL+"/3")...).CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "stopped: export: ") || asked.Load() != 2 {
		r.Fatalf("%d requests, %v\n%s", asked.Load(), err, out)
	}
	<-aborted
	out, err = r.command(append(r.start, web.URL)...).CombinedOutput()
	if err != nil || asked.Load() != 3 {
		r.Errorf("without a loss: %d requests, %v\n%s", asked.Load(), err, out)
	}
}

// express: ten requests for one order, and one while somebody else has its lock.
func express(r running) {
	port := testredis.FreePort(r)
	cmd := r.command(r.start...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("PORT=%d", port))
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if r.Failed() {
			r.Logf("%s", out)
		}
	}()
	harness.Eventually(r, "it listens", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	var paid atomic.Int64
	harness.Together(10, func(int) {
		if code, body := r.pay(port); code == http.StatusOK && body == `{"paid":true}` {
			paid.Add(1)
		}
	})
	if paid.Load() != 1 {
		r.Errorf("%d of ten requests have paid", paid.Load())
	}
	harness.Expect(r, harness.Dial(r, r.proxy.Addr()), "+OK\r\n", "LOCK", "order:7")
	if code, body := r.pay(port); code != http.StatusConflict || body != `{"error":"busy"}` {
		r.Errorf("while somebody else has the lock: %d, %s", code, body)
	}
}

func (r running) pay(port int) (code int, body string) {
	resp, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/orders/7/pay", port), "", nil)
	if err != nil {
		r.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Error(err)
	}
	return resp.StatusCode, string(text)
}
