package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logged is a line of the log, as a call in the code writes it.
type logged struct{ level, message string }

// levels are the methods of a logger, by what the line is called in the log. A call of Log, whose level depends, has
// "varies".
var levels = map[string]string{"Info": "INFO", "Warn": "WARN", "Error": "ERROR", "Log": "varies"}

// notServing are packages that are no part of a proxy.
var notServing = regexp.MustCompile(`^(?:integration|bench|deploy|internal/testredis|internal/simulation)\b`)

// loggedIn are the lines that the code writes to the log, without those for --log-level debug; hidden are the places that
// write one whose message is known only then.
func loggedIn(files []source) (all []logged, hidden []string) {
	for _, f := range files {
		if f.test || notServing.MatchString(f.pkg) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				line, is := lineOf(call)
				switch {
				case is && strings.Trim(line.message, "… ") == "":
					hidden = append(hidden, f.path)
				case is:
					all = append(all, line)
				}
			}
			return true
		})
	}
	slices.SortFunc(all, func(a, b logged) int { return cmp.Compare(a.message, b.message) })
	same := func(a, b logged) bool { return a.level == b.level && a.message == b.message }
	return slices.CompactFunc(all, same), hidden
}

// lineOf is the line that a call writes: log.Warn(message, field, value …), log.Log(context, level, message, …), or the
// same by a pipe's method log(level, message, …).
func lineOf(call *ast.CallExpr) (line logged, is bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return line, false
	}
	args := call.Args
	switch name := method.Sel.Name; {
	case name == "log" && len(args) >= 2:
		line.level, args = levelOf(args[0]), args[1:]
	case name == "Log" && len(args) >= 3 && isLogger(method.X):
		line.level, args = levelOf(args[1]), args[2:]
	case levels[name] != "" && name != "Log" && len(args) >= 1 && isLogger(method.X):
		line.level = levels[name]
	default:
		return line, false
	}
	line.message = messageOf(args[0])
	return line, true
}

// levelOf is the level that a call names by a constant of slog.
func levelOf(e ast.Expr) string {
	if constant, ok := e.(*ast.SelectorExpr); ok {
		if level := levels[strings.TrimPrefix(constant.Sel.Name, "Level")]; level != "" {
			return level
		}
	}
	return "varies"
}

// isLogger says whether an expression is called as loggers are here: log, Log, Logger, a lossLog's to, or one that
// loglimit makes.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log"
	case *ast.SelectorExpr:
		return slices.Contains([]string{"log", "Log", "Logger", "to"}, e.Sel.Name)
	case *ast.CallExpr:
		made, ok := e.Fun.(*ast.SelectorExpr)
		return ok && made.Sel.Name == "Most"
	}
	return false
}

// messageOf is the text of a message, with … for what is known only when it is written.
func messageOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return messageOf(e.X) + messageOf(e.Y)
	}
	return "…"
}

// logPage is the whole of docs/LOG.md.
func logPage(lines []logged) string {
	var b strings.Builder
	b.WriteString(`<!-- Written by: go test ./internal/arch -update -->

# Lines in the log

What is logged as a warning or an error, by the messages; "varies" may be either, or INFO. INFO lines need no
answer.

| level | message | what to do |
|---|---|---|
`)
	for _, l := range lines {
		if l.level == "INFO" {
			continue
		}
		message := strings.ReplaceAll(l.message, "|", `\|`)
		_, advice := advised(l.message)
		row := fmt.Sprintf("| %s | %s | %s |\n", l.level, message, advice)
		b.WriteString(strings.ReplaceAll(row, "  ", " "))
	}
	return b.String()
}

// toDo says what to do about the lines that are not enough by themselves, by their messages or how these begin.
var toDo = map[string]string{
	"lock lost": "the holder was told; look at `reason`: see [LockproxyLocksLost](ALERTS.md#lockproxylockslost)",
	"no lock can be had: a trial lock could not be taken and released": "`error` has Redis' words: see " +
		"[LockproxyNoLocks](ALERTS.md#lockproxynolocks). If a [right](OPERATIONS.md#who-may-lock) or a command is " +
		"missing, no lock is given until it is there",
	"clients were closed that held locks, which end with their leases": "`why` is that of the `last` one. " +
		"`no sign of life`: its machine or network is gone, or [drops packets](OPERATIONS.md#processors)",
	"a lock whose client has gone is not given back yet": "Redis did not answer; nobody else gets the lock " +
		"before its lease is over",
	"not all clients came to rest in time": "`error` says who held which locks; if any did, raise `--drain-timeout`. " +
		"The others, as in `BLPOP` or `MULTI`, connect again",
	"a node describes another cluster than the one that is known":         "check the address",
	"max-clients lowered to what the limit of open files leaves room for": "raise it (`LimitNOFILE`, `ulimit -n`)",
	"lines of the log were dropped, since nobody read them": "whatever reads standard error stood still; " +
		"`lines` are missing here",
	"a user is over its share": "see [One user's share](OPERATIONS.md#one-users-share)",
	"protected mode":           "see [Who may connect](OPERATIONS.md#who-may-connect)",
	"clients dropped":          "see [Memory](OPERATIONS.md#memory)",
}

// advised is what to do about a line, and how its entry in toDo is called; "": nothing is said.
func advised(message string) (key, advice string) {
	for key, advice := range toDo {
		if strings.HasPrefix(message, key) {
			return key, advice
		}
	}
	return "", ""
}

// TestLogIsDocumented: docs/LOG.md has the warnings and errors that the code writes, and advice about no others.
func TestLogIsDocumented(t *testing.T) {
	lines, hidden := loggedIn(readHouse(t))
	if len(lines) < 60 {
		t.Errorf("%d lines were found", len(lines))
	}
	// A pipe's method log is called with the messages that are found.
	if !slices.Equal(hidden, []string{"upstream/connect.go"}) {
		t.Errorf("the messages of lines are known only when they are written in %q", hidden)
	}
	path := filepath.Join("..", "..", "docs", "LOG.md")
	if *update {
		if err := os.WriteFile(path, []byte(logPage(lines)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != logPage(lines) {
		t.Errorf("%s is stale (%v): go test ./internal/arch -update", path, err)
	}
	used := map[string]bool{}
	for _, l := range lines {
		key, _ := advised(l.message)
		used[key] = true
	}
	for key := range toDo {
		if !used[key] {
			t.Errorf("no code writes %q", key)
		}
	}
}
