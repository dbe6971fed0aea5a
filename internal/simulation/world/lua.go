package world

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	luajson "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Scripts run here, not in miniredis, which makes a new Lua state for each and gives their errors other words than Redis.

// compiled are scripts by their source, for all nodes: they never change.
var compiled sync.Map

// script is what a node keeps of a script.
type script struct {
	source string
	sha    string
	proto  *lua.FunctionProto
}

func compile(source string) (script, error) {
	if made, known := compiled.Load(source); known {
		return made.(script), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return script{}, err
	}
	p, err := lua.Compile(chunk, "user_script")
	if err != nil {
		return script{}, err
	}
	p.IsVarArg &^= lua.VarArgNeedsArg // as in Lua 5.1, the main chunk has no table "arg", which costs as much as a small script
	made := script{source, digest(source), p}
	compiled.Store(source, made)
	return made, nil
}

// scripting is one node's Lua. Its state lives on from script to script, which may not make globals.
type scripting struct {
	n     *Node
	state *lua.LState
	known map[string]script // by SHA
	on    *session          // whose script runs
	inner *session          // by which it calls commands
}

func (s *scripting) open() {
	s.state, s.inner = lua.NewState(lua.Options{SkipOpenLibs: true}), newSession()
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		s.state.Push(s.state.NewFunction(open))
		s.state.Call(0, 0)
	}
	text := s.state.GetGlobal("string").(*lua.LTable)
	text.RawSetString("find", s.state.NewFunction(findWords(text.RawGetString("find").(*lua.LFunction).GFunction)))
	s.state.Push(s.state.NewFunction(luajson.Loader))
	s.state.Call(0, 1)
	s.state.SetGlobal("cjson", s.state.Get(-1))
	s.state.Pop(1)
	s.state.SetGlobal("redis", s.state.SetFuncs(s.state.NewTable(), map[string]lua.LGFunction{
		"call": func(l *lua.LState) int { return s.call(l, true) }, "pcall": func(l *lua.LState) int { return s.call(l, false) },
		"error_reply":  func(l *lua.LState) int { return s.word(l, "err") },
		"status_reply": func(l *lua.LState) int { return s.word(l, "ok") },
		"sha1hex": func(l *lua.LState) int {
			l.Push(lua.LString(digest(l.CheckString(1))))
			return 1
		},
		"log": nothing, "setresp": nothing, "replicate_commands": nothing,
	}))
	guard := s.state.NewTable()
	guard.RawSetString("__newindex", s.state.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to create global variable '%s'", l.Get(2).String())
		return 0
	}))
	s.state.SetMetatable(s.state.G.Global, guard)
}

func nothing(*lua.LState) int { return 0 }

// findWords is string.find, without compiling a pattern for a plain word: most scripts ask so for their flags.
func findWords(find lua.LGFunction) lua.LGFunction {
	return func(l *lua.LState) int {
		in, isText := l.Get(1).(lua.LString)
		word, plain := l.Get(2).(lua.LString)
		if l.GetTop() != 2 || !isText || !plain || word == "" || strings.ContainsAny(string(word), "^$*+?.([%-") {
			return find(l)
		}
		at := strings.Index(string(in), string(word))
		if at < 0 {
			l.Push(lua.LNil)
			return 1
		}
		l.Push(lua.LNumber(at + 1))
		l.Push(lua.LNumber(at + len(word)))
		return 2
	}
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// word is redis.error_reply and redis.status_reply.
func (s *scripting) word(l *lua.LState, field string) int {
	t := l.NewTable()
	t.RawSetString(field, lua.LString(strings.TrimPrefix(l.CheckString(1), "-")))
	l.Push(t)
	return 1
}

// call is redis.call, and redis.pcall, which raises no error.
func (s *scripting) call(l *lua.LState, raises bool) int {
	words := make([]string, l.GetTop())
	for i := range words {
		words[i] = lua.LVAsString(l.Get(i + 1))
	}
	if len(words) == 0 {
		l.RaiseError("Please specify at least one argument for this redis.call() call")
	}
	s.inner.peer.Ctx = s.on.peer.Ctx
	s.n.srv.Dispatch(s.inner.peer, words)
	reply, _ := parseReply(s.inner.take())
	if refused, is := reply.(error); is {
		text := refused.Error()
		if strings.Contains(text, "unknown command") {
			text = "ERR Unknown Redis command called from script"
		}
		if raises {
			l.Error(lua.LString(text), 0)
		}
		t := l.NewTable()
		t.RawSetString("err", lua.LString(text))
		l.Push(t)
		return 1
	}
	l.Push(toLua(l, reply))
	return 1
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch v := reply.(type) {
	case int64:
		return lua.LNumber(v)
	case []byte:
		return lua.LString(v)
	case string:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(v))
		return t
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, e := range v {
			t.Append(toLua(l, e))
		}
		return t
	}
	return lua.LFalse
}

func writeLua(w *server.Writer, v lua.LValue) {
	switch v := v.(type) {
	case lua.LNumber:
		w.WriteInt(int(math.Trunc(float64(v))))
	case lua.LString:
		w.WriteBulk(string(v))
	case *lua.LTable:
		if e := v.RawGetString("err"); e != lua.LNil {
			w.WriteError(e.String())
			return
		}
		if status := v.RawGetString("ok"); status != lua.LNil {
			w.WriteInline(status.String())
			return
		}
		w.WriteLen(v.Len())
		for i := 1; i <= v.Len(); i++ {
			writeLua(w, v.RawGetInt(i))
		}
	case lua.LBool:
		if v {
			w.WriteInt(1)
			return
		}
		w.WriteNull()
	default:
		w.WriteNull()
	}
}

// load keeps a script, and returns its SHA, or the error that Redis answers.
func (s *scripting) load(source string) (sha string, err error) {
	made, err := compile(source)
	if err != nil {
		return "", fmt.Errorf("ERR Error compiling script (new function): %w", err)
	}
	s.known[made.sha] = made
	return made.sha, nil
}

// eval answers EVAL and EVALSHA; mu is held.
func (s *scripting) eval(on *session, args []string, bySHA bool) {
	if len(args) < 2 {
		on.peer.WriteError("ERR wrong number of arguments for 'eval' command")
		return
	}
	keys, err := strconv.Atoi(args[1])
	if err != nil || keys < 0 || keys > len(args)-2 {
		on.peer.WriteError("ERR Number of keys can't be greater than number of args")
		return
	}
	var sha string
	if bySHA {
		sha = strings.ToLower(args[0])
	} else if sha, err = s.load(args[0]); err != nil {
		on.peer.WriteError(err.Error())
		return
	}
	kept, known := s.known[sha]
	if !known {
		on.peer.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		return
	}
	s.run(on, sha, kept.proto, args[2:2+keys], args[2+keys:])
}

func (s *scripting) run(on *session, sha string, proto *lua.FunctionProto, keys, args []string) {
	if s.state == nil {
		s.open()
	}
	l := s.state
	s.on = on
	for _, list := range []struct {
		name  string
		words []string
	}{{"KEYS", keys}, {"ARGV", args}} {
		t := l.CreateTable(len(list.words), 0)
		for _, word := range list.words {
			t.Append(lua.LString(word))
		}
		l.G.Global.RawSetString(list.name, t)
	}
	l.Push(l.NewFunctionFromProto(proto))
	if err := l.PCall(0, 1, nil); err != nil {
		text := err.Error()
		if raised, is := err.(*lua.ApiError); is {
			text = raised.Object.String()
		}
		if first, _, _ := strings.Cut(text, " "); first != strings.ToUpper(first) {
			text = "ERR " + text
		}
		on.peer.WriteError(text + " script: " + sha + ", on @user_script.")
		l.SetTop(0)
		return
	}
	result := l.Get(-1)
	l.Pop(1)
	on.peer.Block(func(w *server.Writer) { writeLua(w, result) })
}

// script answers SCRIPT.
func (s *scripting) script(on *session, args []string) {
	switch verb := strings.ToUpper(slices.Concat(args, []string{""})[0]); {
	case verb == "FLUSH":
		clear(s.known)
		on.peer.WriteOK()
	case verb == "LOAD" && len(args) == 2:
		sha, err := s.load(args[1])
		if err != nil {
			on.peer.WriteError(err.Error())
			return
		}
		on.peer.WriteBulk(sha)
	case verb == "EXISTS":
		on.peer.Block(func(w *server.Writer) {
			w.WriteLen(len(args) - 1)
			for _, sha := range args[1:] {
				_, known := s.known[strings.ToLower(sha)]
				writeLua(w, lua.LNumber(map[bool]int{true: 1}[known]))
			}
		})
	default:
		on.peer.WriteError("ERR unknown subcommand or wrong number of arguments for 'script' command")
	}
}
