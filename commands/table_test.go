package commands

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
)

// Each row is there once, comes behind that of its command, and has a note and somebody to answer it.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Rows() {
		if !strings.HasSuffix(c.Note, ".") || strings.Contains(c.Note, "|") {
			t.Errorf("%s: its note is %q, it wants a sentence", c.Name, c.Note)
		}
		if seen[c.Name] || c.Name != strings.ToLower(c.Name) || !c.Here {
			t.Errorf("%s: a second row, not in lower case, or not answered here", c.Name)
		}
		if AnswerOf(c) == nil {
			t.Errorf("nobody answers %s", c.Name)
		}
		if seen[c.Name] = true; !strings.Contains(c.Name, "|") {
			for other := range seen {
				if strings.HasPrefix(other, c.Name+"|") {
					t.Errorf("%s comes behind %s, which it would take away", c.Name, other)
				}
			}
		}
	}
}

// What Redis lists of CLUSTER is answered here like CLUSTER, and so is what the table refuses.
func TestAnswerOf(t *testing.T) {
	slots := &commandtable.Command{Name: "cluster|slots", Arity: 2}
	table := commandtable.New(nil, []string{"cluster|nodes"}, Rows(), []*commandtable.Command{{Name: "cluster", Arity: -2}, slots, {Name: "get", Arity: 2}})
	for call, want := range map[string]string{
		"CLUSTER SLOTS":   "-" + noCluster + "\r\n",
		"CLUSTER foo":     "-" + noCluster + "\r\n",
		"CLUSTER NODES":   "-ERR 'CLUSTER NODES' is denied by lockproxy's --deny\r\n",
		"SCRIPT DEBUG no": "-ERR 'SCRIPT DEBUG' is not supported by lockproxy\r\n",
		"CLIENT foo":      "-ERR unknown subcommand 'foo'. Try CLIENT HELP.\r\n",
	} {
		args := words(call)
		c := table.Find(args)
		if got := string(AnswerOf(c)(calling(), args, nil)); !c.Here || got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
	if c := table.Find(words("GET k")); c.Here {
		t.Error("GET is answered here")
	}
}

// saying is the session of a client that says something of itself.
type saying struct {
	Session
	of *client.Client
}

func (s *saying) Rename(name string) { s.of.Set(client.Setting{Of: client.SettingName, Value: name}) }

// calling is a client of a proxy that knows its own commands alone.
func calling() *Client {
	common := &backend.Common{}
	common.Routes.Store(&backend.Routes{Table: commandtable.New(nil, nil, Rows(), nil)})
	return &Client{Client: speaking(2), Session: &saying{}, Proxy: &operator{}, Forwarder: &backend.Forwarder{Common: common}}
}

// What a client says of itself is set at once, and what is queued in a transaction would set the same.
func TestSettings(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for call, want := range map[string]string{
		"CLIENT SETINFO lib-name py":                  fmt.Sprint(client.Setting{Of: client.SettingLibrary, Value: "py"}),
		"CLIENT SETINFO LIB-VER 1.2":                  fmt.Sprint(client.Setting{Of: client.SettingVersion, Value: "1.2"}),
		"CLIENT SETINFO lib-nme py":                   "-ERR Unrecognized option 'lib-nme'\r\n",
		"CLIENT SETINFO lib-ver ü":                    "-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n",
		"CLIENT SETINFO LIB-Name ü":                   "-ERR LIB-Name cannot contain spaces, newlines or special characters.\r\n",
		"CLIENT SETINFO TraceParent " + parent:        fmt.Sprint(client.Setting{Of: client.SettingParent, Value: parent}),
		"CLIENT SETINFO traceparent " + parent[:54]:   "-ERR traceparent must be 00-<trace id>-<span id>-<flags> in lower-case hexadecimal digits, or empty.\r\n",
		"CLIENT SETINFO traceparent ü":                "-ERR traceparent cannot contain spaces, newlines or special characters.\r\n",
		"CLIENT SETNAME me":                           fmt.Sprint(client.Setting{Of: client.SettingName, Value: "me"}),
		"CLIENT SETNAME " + strings.Repeat("ü", 4097): "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
		"CLIENT SETNAME ü":                            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
		"CLIENT NO-TOUCH on":                          fmt.Sprint(client.Setting{Of: client.SettingNoTouch, Value: "ON"}),
		"CLIENT NO-EVICT Off":                         fmt.Sprint(client.Setting{Of: client.SettingNoEvict, Value: "OFF"}),
		"CLIENT NO-EVICT x":                           "-" + syntaxError + "\r\n",
		"CLIENT CAPA x Lock-Lost":                     fmt.Sprint(client.Setting{Of: client.SettingLossPush, Value: "ON"}),
	} {
		args := words(call)
		name := "client|" + strings.ToLower(string(args[1]))
		c := speaking(2)
		_, effect := Queued(commandtable.New(nil, nil, Rows(), nil).Find(args), redcon.Command{Args: args}, "", true)
		said, _ := effect.(dedicated.Setting)
		queued := client.Setting(said)
		got := string(answers[name](&Client{Client: c, Session: &saying{of: c}}, args, nil))
		then := speaking(2)
		if then.Set(queued); !reflect.DeepEqual(then.Said(), c.Said()) {
			t.Errorf("%s: sets %v, and %v in a transaction", call, c.Said(), then.Said())
		}
		if got == "+OK\r\n" {
			got = fmt.Sprint(queued)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
	}
}
