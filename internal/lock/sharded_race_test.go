//go:build race

package lock

func init() { underRace = true }
