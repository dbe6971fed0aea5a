// Package arch holds the house together: its test lets imports run downwards
// only, along the table in table_test.go, writes docs/imports.md of it, and
// has goroutines named. It has no code of its own.
package arch
