// Package orders is a suite of tests that have a lockproxy.
package orders

import (
	"bufio"
	"log"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// address is that of a lockproxy for all tests.
var address string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	proxy := exec.Command("lockproxy", "--attached", "yes", "--listen", "127.0.0.1:0", "--log-level", "error")
	proxy.Stderr = os.Stderr
	stdin, err := proxy.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	stdout, err := proxy.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := proxy.Start(); err != nil {
		log.Fatal(err)
	}
	defer proxy.Wait()
	defer stdin.Close()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		log.Print("lockproxy: ", err)
		return 1
	}
	address = strings.TrimSpace(line)
	return m.Run()
}
