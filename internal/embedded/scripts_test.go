package embedded

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What is packed, and what is unpacked, is what Redis' own cmsgpack makes of it.
func TestCmsgpackIsRedisOwn(t *testing.T) {
	t.Parallel()
	direct, ours := testredis.Start(t).Dial(t), dialEmbedded(t)
	const hex = ` if #s > 300 then return redis.sha1hex(s) end
		return (s:gsub('.', function(c) return string.format('%02x', string.byte(c)) end))`
	for _, value := range []string{
		"nil", "true", "false", "0", "1", "127", "128", "255", "256", "65535", "65536", "4294967295", "4294967296",
		"9007199254740992", "-1", "-32", "-33", "-128", "-129", "-32768", "-32769", "-2147483648", "-2147483649",
		"-1099511627777", "0.1", "-2.2", "1e300", "5e-324", "1e-310", "-2^1023 * 2", "2^1023 * 2", "2^1023 * (2 - 2^-52)",
		"-0.5", "3.5e38",
		"''", "'x'", "('x'):rep(31)", "('x'):rep(32)", "('x'):rep(255)", "('x'):rep(256)", "('x'):rep(65536)",
		"'\\255\\0'", "{}", "{1,2,{3}}", "{a={b='c'}}",
		"{[1.5]=1}", "{[2]=1}", "1, 'two', {3}",
	} {
		pack := "local s = cmsgpack.pack(" + value + ")" + hex
		want, err := redis.String(direct.Do("EVAL", pack, 0))
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		if got, err := redis.String(ours.Do("EVAL", pack, 0)); got != want || err != nil {
			t.Errorf("%s is packed as %.80s, %v, want %.80s", value, got, err, want)
		}
		// Numbers are written in full, and what is not one as JSON.
		const unpack = `local out = {} for i, v in ipairs({cmsgpack.unpack(cmsgpack.pack(%))}) do
			out[i] = type(v) == 'number' and string.format('%.17g', v) or
				cjson.encode(type(v) == 'table' and {v[1] or v.a or 0} or type(v) == 'string' and #v or v) end
			return out`
		source := strings.Replace(unpack, "%", value, 1)
		wanted, err := redis.Strings(direct.Do("EVAL", source, 0))
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		// The store's Lua writes +Inf.
		got, err := redis.Strings(ours.Do("EVAL", source, 0))
		text := strings.TrimPrefix(strings.ToLower(strings.Join(got, " ")), "+")
		if text != strings.Join(wanted, " ") || err != nil {
			t.Errorf("%s comes back as %.80q, %v, want %.80q", value, got, err, wanted)
		}
	}
	for want, text := range map[string]string{
		"1.5": `\202\063\192\000\000`, "3.4028234663852886e+38": `\202\127\127\255\255`, "b": `\218\000\001b`,
	} {
		source := "return tostring(cmsgpack.unpack('" + text + "'))"
		if want[0] < 'a' {
			source = "return string.format('%.17g', cmsgpack.unpack('" + text + "'))"
		}
		for who, c := range map[string]redis.Conn{"Redis": direct, "the store": ours} {
			if got, err := redis.String(c.Do("EVAL", source, 0)); got != want || err != nil {
				t.Errorf("%s unpacks %s as %q, %v, want %s", who, text, got, err, want)
			}
		}
	}
	for _, text := range []string{`\193`, `\196\001a`, `\217\005abc`, `\146\001`} {
		for who, c := range map[string]redis.Conn{"Redis": direct, "the store": ours} {
			got, err := c.Do("EVAL", "return cmsgpack.unpack('"+text+"')", 0)
			if err == nil || !strings.Contains(err.Error(), "in input") {
				t.Errorf("%s unpacks %s: %v, %v", who, text, got, err)
			}
		}
	}
}

// A script that needs cmsgpack is known by its own SHA.
func TestScriptsAreKnownByTheirSHA(t *testing.T) {
	t.Parallel()
	c := dialEmbedded(t)
	const source = "return cmsgpack.unpack(cmsgpack.pack(KEYS[1] .. ARGV[1]))"
	sha := digest(source)
	do := func(want any, words ...any) {
		t.Helper()
		got, err := c.Do(words[0].(string), words[1:]...)
		if text, is := got.([]byte); is {
			got = string(text)
		}
		if all, is := got.([]any); is && len(all) == 1 {
			got = all[0]
		}
		if err != nil {
			got = strings.Fields(err.Error())[0]
		}
		if got != want {
			t.Errorf("%v: %v, want %v", words, got, want)
		}
	}
	for _, first := range [][]any{
		{"EVAL", source, 1, "a", "b"}, {"SCRIPT", "LOAD", source}, {"EVAL_RO", source, 1, "a", "b"},
	} {
		do("NOSCRIPT", "EVALSHA", sha, 1, "a", "b")
		do(int64(0), "SCRIPT", "EXISTS", sha)
		want := "ab"
		if first[0] == "SCRIPT" {
			want = sha
		}
		do(want, first...)
		do(int64(1), "SCRIPT", "EXISTS", sha)
		do("ab", "EVALSHA", strings.ToUpper(sha), 1, "a", "b")
		do("ab", "EVALSHA_RO", sha, 1, "a", "b")
		do("OK", "MULTI")
		do("QUEUED", "EVALSHA", sha, 1, "a", "b")
		if replies, err := redis.Strings(c.Do("EXEC")); err != nil || len(replies) != 1 || replies[0] != "ab" {
			t.Errorf("in a transaction: %q, %v", replies, err)
		}
		do("OK", "SCRIPT", "FLUSH")
	}
	if _, err := c.Do("EVAL", "\n\nerror(cmsgpack.pack('x'))", 0); err == nil || !strings.Contains(err.Error(), ":3:") {
		t.Errorf("an error in line 3: %v", err)
	}
}

// The error that ends a script is Redis' own, but for Lua's words.
func TestErrorsOfScriptsAreRedisOwn(t *testing.T) {
	t.Parallel()
	direct, ours := testredis.Start(t).Dial(t), dialEmbedded(t)
	for _, c := range []redis.Conn{direct, ours} {
		if _, err := c.Do("SET", "text", "x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, source := range []string{
		"return redis.call('HGET', 'text', 'field')",
		"local function get()\n return redis.call('HGET', 'text', 'field') end\n\nreturn get()",
		"return redis.pcall('HGET', 'text', 'field')",
		"\nerror('no luck')",
		"return redis.error_reply('MINE it is')",
	} {
		_, want := direct.Do("EVAL", source, 0)
		_, got := ours.Do("EVAL", source, 0)
		if want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%q: %v, want %v", source, got, want)
		}
		sha, err := redis.String(ours.Do("SCRIPT", "LOAD", source))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := ours.Do("EVALSHA", sha, 0); got == nil || got.Error() != want.Error() {
			t.Errorf("%q by its SHA: %v, want %v", source, got, want)
		}
	}
}
