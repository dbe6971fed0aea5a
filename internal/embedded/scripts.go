package embedded

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

//go:embed cmsgpack.lua
var cmsgpackFile string

// cmsgpack is the file without its comments, as one line: line numbers in errors stay those of the script.
var cmsgpack = oneLine(cmsgpackFile)

func oneLine(lua string) string {
	var b strings.Builder
	for line := range strings.Lines(lua) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--") {
			b.WriteString(line + " ")
		}
	}
	return b.String()
}

// script is what is run for a script of a client's.
type script struct {
	source string
	stored string // the SHA under which miniredis has it, for SCRIPT EXISTS
}

// needsCmsgpack says whether a script uses cmsgpack, which miniredis has not, and has not been given it.
func needsCmsgpack(source string) bool {
	return strings.Contains(source, "cmsgpack") && !strings.HasPrefix(source, cmsgpack)
}

// eval answers EVAL and EVALSHA, and their _RO forms. A script that needs cmsgpack is given it, and an error is told as
// Redis would.
func (s *Store) eval(p *server.Peer, cmd string, args []string) {
	words, sha := slices.Concat([]string{cmd}, args), ""
	form, bySHA := strings.CutPrefix(cmd, "EVALSHA")
	switch {
	case len(args) == 0:
	case bySHA:
		sha = strings.ToLower(args[0])
		if known, is := s.scripts.Load(sha); is {
			words[0], words[1] = "EVAL"+form, known.(script).source
		}
	default:
		sha = digest(args[0])
		if needsCmsgpack(args[0]) {
			words[1] = cmsgpack + args[0]
			s.scripts.Store(sha, script{words[1], digest(words[1])})
		}
	}
	p.WriteRaw(scriptError(string(s.through(p, words)), sha))
}

// raised is what miniredis says when a script ends with an error: its own words, the line, the error's text, the SHA
// that some errors have, and the Lua functions that were at work.
var raised = regexp.MustCompile(`^-ERR Error compiling script \(new function\): (?::(\d+): )?(.*?)(?: script: \S+, &c\.)?\s+stack traceback:`)

// scriptError is a reply to a script; if it is the error that ended the script, in Redis' words.
func scriptError(reply, sha string) string {
	found := raised.FindStringSubmatch(reply)
	if found == nil {
		return reply
	}
	line, text := found[1], found[2]
	if code, _, _ := strings.Cut(text, " "); code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		text = "ERR user_script:" + line + ": " + text
	}
	return "-" + text + " script: " + sha + ", on @user_script:" + line + ".\r\n"
}

// scriptCommand sees SCRIPT, and answers SCRIPT EXISTS where it names a script that needs cmsgpack.
func (s *Store) scriptCommand(p *server.Peer, args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch strings.ToUpper(args[0]) {
	case "LOAD":
		if len(args) == 2 && needsCmsgpack(args[1]) {
			sha := digest(args[1])
			s.scripts.Store(sha, script{cmsgpack + args[1], sha})
		}
	case "FLUSH":
		s.scripts.Clear()
	case "EXISTS":
		words, changed := []string{"SCRIPT", "EXISTS"}, false
		for _, sha := range args[1:] {
			if known, is := s.scripts.Load(strings.ToLower(sha)); is && known.(script).stored != sha {
				sha, changed = known.(script).stored, true
			}
			words = append(words, sha)
		}
		if changed {
			s.redis.Server().Dispatch(p, words)
			return true
		}
	}
	return false
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
