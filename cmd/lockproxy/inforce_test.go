package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// inWords is an answer's words in one line.
func inWords(answer any) string {
	switch a := answer.(type) {
	case []any:
		words := make([]string, len(a))
		for i := range a {
			words[i] = inWords(a[i])
		}
		return strings.Join(words, " ")
	case []byte:
		return string(a)
	}
	return fmt.Sprint(answer)
}

// awaitText waits until what a function returns has a text in it.
func awaitText(t *testing.T, want string, get func() string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got := get()
		if strings.Contains(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q never comes: %s", want, got)
		}
	}
}

// fetch is what a page answers.
func fetch(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// What is shown of the settings says what holds, where it comes from and how the last reload went, and has no password,
// wherever that was given.
func TestSettingsInForce(t *testing.T) {
	t.Parallel()
	const secret = "MARKED-secret"
	server := testredis.Start(t, "--requirepass", secret)
	_, at, _ := strings.Cut(server.URL(), "@")
	urls := map[string]string{
		"upstream": server.URL(),
		"quorum":   fmt.Sprintf("redis://:%[1]s@127.0.0.1:1,redis://user:%[1]s@127.0.0.1:2,redis://:%[1]s@127.0.0.1:3", secret),
	}
	for _, from := range []string{"flag", "environment", "file"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			addr, metrics, page := freeAddr(t), freeAddr(t), freeAddr(t)
			file := filepath.Join(t.TempDir(), "lockproxy.yaml")
			yaml := func(text string) {
				if from == "file" {
					text += fmt.Sprintf("upstream: %q\nquorum: %q\n", urls["upstream"], urls["quorum"])
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			yaml("max-clients: 20\n")
			cmd := exec.Command(os.Args[0], "--listen", addr, "--config", file, "--operators", "default", "--metrics-listen", metrics, "--admin-listen", page)
			cmd.Env = os.Environ()
			for name, url := range urls {
				switch from {
				case "flag":
					cmd.Args = append(cmd.Args, "--"+name, url)
				case "environment":
					cmd.Env = append(cmd.Env, "LOCKPROXY_"+strings.ToUpper(name)+"="+url)
				}
			}
			p := startCommand(t, cmd)
			c := p.dial("tcp", addr)
			expect(t, c, "OK", "AUTH", secret)
			shown := func() (text string) {
				for _, call := range []string{"CONFIG", "STATS"} {
					answer, err := c.Do("LOCKPROXY", call)
					if err != nil {
						t.Fatal(err)
					}
					text += inWords(answer) + "\n"
				}
				for _, path := range []string{"/settings", "/settings.json", "/parts?page=/settings", "/", "/nodes.json"} {
					text += fetch(t, "http://"+page+path)
				}
				if strings.Contains(text, secret) {
					t.Errorf("the password is shown: %s", text)
				}
				return text
			}
			check := func(wants ...string) {
				t.Helper()
				for _, want := range wants {
					if text := shown(); !strings.Contains(text, want) {
						t.Errorf("%q is not in %s", want, text)
					}
				}
			}
			scraped := func() string { return fetch(t, "http://"+metrics+"/metrics") }
			check("name upstream value redis://"+at+" from "+from+" live 0 waiting <nil>",
				"name quorum value redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3 from "+from,
				"name max-clients value 20 from file live 1", "name drain-delay value 5s from default live 1",
				"config_last_reload_success 1", "config_last_reload OK\n", `{"name":"max-clients","value":"20","from":"file","live":true,"waiting":null}`,
				"<bdi>redis://"+at+"</bdi>")

			yaml("max-clients: 30\nlock-watchdog-timeout: 9s\n")
			if _, err := c.Do("LOCKPROXY", "RELOAD"); err != nil {
				t.Error(err)
			}
			check("name max-clients value 30 from file", "name lock-watchdog-timeout value 30s from default live 0 waiting 9s",
				"config_last_reload OK; taken: max-clients; a restart is needed for: lock-watchdog-timeout")
			awaitText(t, "\nlockproxy_config_last_reload_success 1\n", scraped)

			yaml("announce-address: redis://a:" + secret + "@b:1\nmax-clients: 0\n")
			p.cmd.Process.Signal(syscall.SIGHUP)
			awaitText(t, "\nlockproxy_config_last_reload_success 0\n", scraped)
			check("name max-clients value 30 from file", "max-clients: 0 is below 1", "announce-address", "name lock-watchdog-timeout value 30s from default live 0 waiting 9s")

			yaml("max-clients: 30\n")
			p.cmd.Process.Signal(syscall.SIGHUP)
			awaitText(t, "\nlockproxy_config_last_reload_success 1\n", scraped)
			check("name lock-watchdog-timeout value 30s from default live 0 waiting <nil>")
			if strings.Contains(p.logged(), secret) {
				t.Error("the password is in the log")
			}
		})
	}
}
