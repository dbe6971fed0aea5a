package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/systemd"
)

const (
	healthTime = 2 * time.Second // for the whole of lockproxy health
	mostSaid   = 4 << 10         // bytes of an answer that it shows
)

// healthMain is lockproxy health: it asks the lockproxy of this machine that has these settings.
func healthMain(args []string) int {
	live := func(arg string) bool { return arg == "--live" || arg == "-live" }
	cfg, err := config.Parse(slices.DeleteFunc(slices.Clone(args), live))
	if errors.Is(err, flag.ErrHelp) || errors.Is(err, config.ErrHelpAll) {
		config.UsageHealth(os.Stdout)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "lockproxy health: %v\n", err)
		return exitUsage
	}
	said, err := askHealth(cfg, slices.ContainsFunc(args, live))
	if err != nil {
		fmt.Fprintf(os.Stderr, "lockproxy health: %s\n", oneLine(err.Error()))
		return exitError
	}
	fmt.Println(oneLine(said))
	return exitOK
}

// oneLine is a text as a line without what would steer a terminal.
func oneLine(text string) string {
	return display.Whole(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}

// askHealth returns what the process answers, or why it is not healthy.
func askHealth(cfg config.Config, live bool) (said string, err error) {
	if at := cfg.Admin.Metrics; at != "" {
		page := "/readyz"
		if live {
			page = "/livez"
		}
		return askPage("http://" + at + page)
	}
	all := slices.Concat(cfg.Listen.Addresses, cfg.TLS.Listen, cfg.Admin.SocketAddress())
	if live { // the admin socket answers without Redis
		all = slices.Concat(cfg.Admin.SocketAddress(), all)
	}
	all = slices.DeleteFunc(all, func(at string) bool { return strings.HasPrefix(at, systemd.Prefix) })
	if len(all) == 0 {
		return "", errors.New("nothing can be asked: only systemd knows the addresses; give metrics-listen or admin-socket")
	}
	at := all[0]
	said, err = ping(at, slices.Contains(cfg.TLS.Listen, at), cfg.Listen.ProxyProtocol == "required")
	if len(cfg.Listen.ProxyFrom) > 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		said, err = "it is there, and closes connections from here: proxy-protocol-from names the load balancers", nil
	}
	if err == nil && !live && !slices.ContainsFunc(serves, func(begin string) bool { return strings.HasPrefix(said, begin) }) {
		err = errors.New(said)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	return said, nil
}

// serves are the answers to PING of a proxy that is ready, to clients that may not stay, too.
var serves = []string{"+PONG", "-NOAUTH", "-DENIED", "-ERR max number of clients"}

// askPage asks one of the pages for probes.
func askPage(url string) (said string, err error) {
	direct := http.Client{Timeout: healthTime, Transport: &http.Transport{}} // not by a proxy that the environment names
	answer, err := direct.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostSaid))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, body)
	}
	return string(body), err
}

// ping returns the line with which a listener answers PING.
func ping(at string, secure, header bool) (line string, err error) {
	network := "tcp"
	if path, unix := strings.CutPrefix(at, "unix://"); unix {
		network, at, header = "unix", path, false
	}
	until := time.Now().Add(healthTime)
	conn, err := (&net.Dialer{Deadline: until}).Dial(network, at)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(until) // what follows fails if this does
	if header {
		_, _ = io.WriteString(conn, "PROXY UNKNOWN\r\n")
	}
	if secure { // it is this machine's own process, which is told nothing: no name and no authority need be known
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	_, _ = io.WriteString(conn, "PING\r\n") // a proxy that is full has closed the connection, and said why
	line, err = bufio.NewReader(io.LimitReader(conn, mostSaid)).ReadString('\n')
	if alert := (&net.OpError{}); secure && errors.As(err, &alert) && alert.Op == "remote error" {
		return "-NOAUTH " + alert.Err.Error(), nil // TLS wants a certificate, so the process is there
	}
	return line, err
}
