// Package clients runs real clients of many languages through lockproxy: one folder a client, with its pinned packages
// and one small program in the language's own way. Only `make interop`, or -run Interop, starts them.
package clients
