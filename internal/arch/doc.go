// Package arch holds the house together: its test lets imports run downwards
// only, along the table in table_test.go, draws them into docs/imports.md, and
// keeps files short and goroutines named. It has no code of its own.
package arch
