package redisson

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// jvm is one running Main.java. Its methods may be called from any goroutine.
type jvm struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone

	mu      sync.Mutex // guards the rest
	in      io.Writer
	serial  int
	pending map[string]chan string
}

var errJavaEnded = errors.New("the JVM has ended")

// startJVM starts the program built in dir; it ends with the test.
func startJVM(t testing.TB, project harness.Project, dir string, run []string) *jvm {
	t.Helper()
	words := append([]string{run[0], "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, run[1:]...)
	return control(t, project.Command(context.Background(), dir, words))
}

// control starts a program that works off commands as Main.java does; it ends with the test.
func control(t testing.TB, cmd *exec.Cmd) *jvm {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer // read when the process has ended
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j := &jvm{cmd: cmd, ended: make(chan struct{}), in: in, pending: map[string]chan string{}}
	go j.listen(out)
	t.Cleanup(func() {
		j.kill()
		if t.Failed() && complaints.Len() > 0 {
			t.Logf("the JVM said:\n%.8000s", complaints.String())
		}
	})
	return j
}

// listen hands out answers until the process ends.
func (j *jvm) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		id, answer, _ := strings.Cut(lines.Text(), "\t")
		j.mu.Lock()
		if waiting, found := j.pending[id]; found {
			delete(j.pending, id)
			waiting <- answer
		}
		j.mu.Unlock()
	}
	_ = j.cmd.Wait() // ended by us, or seen in the calls that fail
	close(j.ended)
}

// kill ends it as kill -9 does, and waits until it is gone.
func (j *jvm) kill() {
	_ = j.cmd.Process.Kill() // fails only when it has ended already
	<-j.ended
}

// call has a thread of a client run one command; a Java exception is an error of its text.
func (j *jvm) call(client, thread, command string, args ...any) (string, error) {
	answer := make(chan string, 1)
	j.mu.Lock()
	j.serial++
	id := fmt.Sprint(j.serial)
	j.pending[id] = answer
	words := []string{id, client, thread, command}
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	_, err := io.WriteString(j.in, strings.Join(words, "\t")+"\n")
	j.mu.Unlock()
	if err != nil {
		return "", errJavaEnded
	}
	select {
	case text := <-answer:
		if failure, failed := strings.CutPrefix(text, "!"); failed {
			return "", errors.New(failure)
		}
		return text, nil
	case <-j.ended:
		return "", errJavaEnded
	}
}

// connect makes a Redisson client in the JVM.
func (j *jvm) connect(t testing.TB, client, addr, mode string) {
	t.Helper()
	if _, err := j.call(client, "main", "connect", addr, mode, watchdog.Milliseconds()); err != nil {
		t.Fatalf("Redisson does not connect to %s (%s): %v", client, mode, err)
	}
}
