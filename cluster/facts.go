package cluster

import "strings"

// Request is where a command without keys, or with keys in several slots, is to go: COMMAND's tip "request_policy".
type Request uint8

// The request policies. Redis' "special" policies are OneNode: the session handles such commands by itself.
const (
	OneNode    Request = iota // by its keys; without keys to one master
	AllNodes                  // to masters and replicas
	AllShards                 // to all masters
	MultiShard                // split by its keys
)

// Response is how the replies of several nodes become one: COMMAND's tip "response_policy".
type Response uint8

// The response policies. NoPolicy joins arrays; what is no array comes from one node.
const (
	NoPolicy Response = iota
	OneSucceeded
	AllSucceeded
	Sum
	Min
	Max
	LogicalAnd
	LogicalOr
	Each // an array of all replies, errors too; no policy of Redis'
)

// Facts are what there is to know of a command, whoever sends it. They do not change.
type Facts struct {
	Name     string // lower case, a subcommand's as "script|load"
	ReadOnly bool
	Script   bool // the text of its errors may be a client's own
	Request  Request
	Response Response
	Partial  bool // of a question to many nodes: those out of reach, and slots that nobody has, are left out
}

// split are the commands that treat each key by itself. MSETNX is not one of them: it sets all keys or none.
var split = map[string]Response{
	"mget": NoPolicy, "mset": AllSucceeded, "del": Sum, "unlink": Sum, "exists": Sum, "touch": Sum,
}

// serverWide are commands that concern a server as a whole. Not every version of Redis says so in their tips.
var serverWide = map[string]Facts{
	"acl|setuser":      {Request: AllNodes, Response: AllSucceeded},
	"acl|deluser":      {Request: AllNodes, Response: Min},
	"acl|load":         {Request: AllNodes, Response: AllSucceeded},
	"acl|save":         {Request: AllNodes, Response: AllSucceeded},
	"config|rewrite":   {Request: AllNodes, Response: AllSucceeded},
	"config|resetstat": {Request: AllNodes, Response: AllSucceeded},
	"client|pause":     {Request: AllShards, Response: AllSucceeded},
	"client|unpause":   {Request: AllShards, Response: AllSucceeded},
	"randomkey":        {Request: AllShards}, // since 7.2 its replies are merged in a special way
	// A node knows of its own subscribers only.
	"pubsub|numpat":        {Request: AllNodes, Response: Sum},
	"pubsub|channels":      {Request: AllNodes},
	"pubsub|numsub":        {Request: AllNodes, Response: Sum},
	"pubsub|shardchannels": {Request: AllNodes},
	"pubsub|shardnumsub":   {Request: AllNodes, Response: Sum},
}

// ofAnyNode are commands that any node answers by itself, and that change nothing, which their flags do not say;
// HELP is another. Since Redis 7.0 PING's tips say that all masters are to answer: one shard that is down would then
// fail the health checks of all clients.
var ofAnyNode = map[string]bool{
	"ping": true, "echo": true, "time": true, "role": true, "lastsave": true, "config|get": true, "module|list": true,
	"acl|whoami": true, "acl|cat": true, "acl|genpass": true, "acl|dryrun": true,
	"acl|users": true, "acl|list": true, "acl|getuser": true,
	"function|list": true, "function|dump": true,
	"command|getkeys": true, "command|getkeysandflags": true,
}

// FactsOf reads what COMMAND says of a command: its name, its flags and its tips.
func FactsOf(name string, flags, tips []string) *Facts {
	f := &Facts{Name: strings.ToLower(name)}
	for _, flag := range flags {
		switch flag {
		case "readonly":
			f.ReadOnly = true
		case "module":
			f.Script = true
		}
	}
	switch base, _, _ := strings.Cut(f.Name, "|"); base {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		f.Script = true
	}
	for _, tip := range tips {
		f.addTip(tip)
	}
	if known, is := serverWide[f.Name]; is {
		f.Request, f.Response = known.Request, known.Response
	}
	if ofAnyNode[f.Name] || strings.HasSuffix(f.Name, "|help") {
		f.ReadOnly, f.Request, f.Response = true, OneNode, NoPolicy
	}
	response, splits := split[f.Name]
	switch {
	case splits:
		f.Request, f.Response = MultiShard, response
	case f.Request == MultiShard:
		f.Request = OneNode
	}
	return f
}

// What COMMAND's tips name the policies. Those that are not named here are as if nothing was said.
var (
	requestPolicies = map[string]Request{
		"all_nodes": AllNodes, "all_shards": AllShards, "multi_shard": MultiShard,
	}
	responsePolicies = map[string]Response{
		"one_succeeded": OneSucceeded, "all_succeeded": AllSucceeded, "agg_sum": Sum, "agg_min": Min, "agg_max": Max,
		"agg_logical_and": LogicalAnd, "agg_logical_or": LogicalOr,
	}
)

func (f *Facts) addTip(tip string) {
	switch what, policy, _ := strings.Cut(tip, ":"); {
	case tip == "response_policy:special": // comes after the request policy
		f.Request = OneNode
	case what == "request_policy":
		f.Request = requestPolicies[policy]
	case what == "response_policy":
		f.Response = responsePolicies[policy]
	}
}
