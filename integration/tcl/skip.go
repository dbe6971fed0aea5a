package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// skip is one line of skip.txt: a test that need not pass through lockproxy.
type skip struct {
	unit    string
	name    string // "*" is every test of the unit
	reason  string
	norun   bool   // it would hang, or break its unit: it is not even tried
	race    bool   // it passes when the suite is lucky
	slots   bool   // its keys, or what it asks of the server as a whole, do not fit one slot
	cluster bool   // of the file for clusters: a unit not run there counts as one that does not pass
	where   string // file:line
	used    bool   // it excused something
}

type skipList []*skip

const (
	norunMark = "norun:"
	raceMark  = "race:"
	slotsMark = "slots:"
)

// readSkips reads the skip file, and those beside it that are for RESP3, name-resp3, and for a cluster, name-cluster.
func readSkips(file string, resp, nodes int) (skipList, error) {
	list, err := readSkipFile(file)
	if err != nil {
		return nil, err
	}
	ext := filepath.Ext(file)
	var beside []string
	if resp == 3 {
		beside = append(beside, "-resp3")
	}
	if nodes > 0 {
		beside = append(beside, "-cluster")
	}
	for _, name := range beside {
		more, err := readSkipFile(strings.TrimSuffix(file, ext) + name + ext)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, s := range more {
			s.cluster = name == "-cluster"
		}
		list = append(list, more...)
	}
	return list, nil
}

func readSkipFile(file string) (skipList, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseSkips(f, filepath.Base(file))
}

// parseSkips reads lines of "unit | test | reason"; # starts a comment.
func parseSkips(r io.Reader, file string) (skipList, error) {
	var list skipList
	seen := map[string]bool{}
	scan := bufio.NewScanner(r)
	for n := 1; scan.Scan(); n++ {
		where := fmt.Sprintf("%s:%d", file, n)
		line := strings.TrimSpace(scan.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// A test's name may have bars of its own.
		first, last := strings.Index(line, " | "), strings.LastIndex(line, " | ")
		if first < 0 || first == last {
			return nil, fmt.Errorf("%s: want: unit | test | reason", where)
		}
		s := &skip{unit: strings.TrimSpace(line[:first]), name: strings.TrimSpace(line[first+3 : last]), where: where}
		s.reason = strings.TrimSpace(line[last+3:])
		s.norun = s.cutMark(norunMark)
		s.race = s.cutMark(raceMark)
		s.slots = s.cutMark(slotsMark)
		if s.unit == "" || s.name == "" || s.reason == "" {
			return nil, fmt.Errorf("%s: unit, test and reason must not be empty", where)
		}
		key := s.unit + "|" + s.name
		if seen[key] {
			return nil, fmt.Errorf("%s: %s | %s is here twice", where, s.unit, s.name)
		}
		seen[key] = true
		list = append(list, s)
	}
	return list, scan.Err()
}

// cutMark takes a mark off the reason, and says whether it was there.
func (s *skip) cutMark(mark string) bool {
	rest, is := strings.CutPrefix(s.reason, mark)
	s.reason = strings.TrimSpace(rest)
	return is
}

// find returns the line for a test, nil when there is none.
func (l skipList) find(unit, name string) *skip {
	for _, s := range l {
		if s.unit == unit && (s.name == name || s.name == "*") {
			return s
		}
	}
	return nil
}

// whole returns the line that keeps a unit from being run at all.
func (l skipList) whole(unit string) *skip {
	for _, s := range l {
		if s.unit == unit && s.name == "*" && s.norun {
			return s
		}
	}
	return nil
}

// norun are the names of a unit's tests that must not be tried.
func (l skipList) norun(unit string) []string {
	var names []string
	for _, s := range l {
		if s.unit == unit && s.norun && s.name != "*" {
			names = append(names, s.name)
		}
	}
	return names
}
