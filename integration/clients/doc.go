// Package clients runs real clients of many languages through lockproxy. Those of Go are in its tests; of the others there is one
// folder a client, with its pinned packages and one small program in the language's own way, which only `make interop`, or
// -run Interop, starts.
package clients
