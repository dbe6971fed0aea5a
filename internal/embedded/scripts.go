package embedded

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
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

// eval answers EVAL and EVALSHA, and their _RO forms, of a script that needs cmsgpack. It returns false of all others.
func (s *Store) eval(p *server.Peer, cmd string, args []string) bool {
	if len(args) == 0 {
		return false
	}
	form := strings.TrimPrefix(cmd, "EVALSHA")
	if form != cmd {
		known, is := s.scripts.Load(strings.ToLower(args[0]))
		if !is {
			return false
		}
		s.run(p, "EVAL"+form, known.(script).source, args[1:])
		return true
	}
	if !needsCmsgpack(args[0]) {
		return false
	}
	source := cmsgpack + args[0]
	s.scripts.Store(digest(args[0]), script{source, digest(source)})
	s.run(p, cmd, source, args[1:])
	return true
}

func (s *Store) run(p *server.Peer, eval, source string, args []string) {
	s.redis.Server().Dispatch(p, slices.Concat([]string{eval, source}, args))
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
